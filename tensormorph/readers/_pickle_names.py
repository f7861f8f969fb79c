"""Names that pickles import: how they are called today, and which of them do more than make an object.

Nothing here imports anything. A name that is not listed is merely not known: no statement is made about it.
"""

from __future__ import annotations

from tensormorph.errors import Severity

# Source: CPython 3.11, Lib/_compat_pickle.py, which Python itself applies to pickles of protocols 0 to 2.
_MODULES = {
    "__builtin__": "builtins", "copy_reg": "copyreg", "Queue": "queue", "SocketServer": "socketserver",
    "ConfigParser": "configparser", "repr": "reprlib", "tkFileDialog": "tkinter.filedialog",
    "tkSimpleDialog": "tkinter.simpledialog", "tkColorChooser": "tkinter.colorchooser",
    "tkCommonDialog": "tkinter.commondialog", "Dialog": "tkinter.dialog", "Tkdnd": "tkinter.dnd",
    "tkFont": "tkinter.font", "tkMessageBox": "tkinter.messagebox", "ScrolledText": "tkinter.scrolledtext",
    "Tkconstants": "tkinter.constants", "Tix": "tkinter.tix", "ttk": "tkinter.ttk", "Tkinter": "tkinter",
    "markupbase": "_markupbase", "_winreg": "winreg", "thread": "_thread", "dummy_thread": "_dummy_thread",
    "dbhash": "dbm.bsd", "dumbdbm": "dbm.dumb", "dbm": "dbm.ndbm", "gdbm": "dbm.gnu", "xmlrpclib": "xmlrpc.client",
    "DocXMLRPCServer": "xmlrpc.server", "SimpleXMLRPCServer": "xmlrpc.server", "httplib": "http.client",
    "htmlentitydefs": "html.entities", "HTMLParser": "html.parser", "Cookie": "http.cookies",
    "cookielib": "http.cookiejar", "BaseHTTPServer": "http.server", "SimpleHTTPServer": "http.server",
    "CGIHTTPServer": "http.server", "test.test_support": "test.support", "commands": "subprocess",
    "urlparse": "urllib.parse", "robotparser": "urllib.robotparser", "urllib2": "urllib.request", "anydbm": "dbm",
    "_abcoll": "collections.abc", "UserDict": "collections", "UserList": "collections", "UserString": "collections",
    "whichdb": "dbm", "StringIO": "io", "cStringIO": "io", "cPickle": "pickle", "_elementtree": "xml.etree.ElementTree",
    "FileDialog": "tkinter.filedialog", "SimpleDialog": "tkinter.simpledialog",
}  # fmt: skip
_MOVED = """
    __builtin__.basestring builtins.str       __builtin__.intern sys.intern             __builtin__.long builtins.int
    __builtin__.reduce functools.reduce       __builtin__.unichr builtins.chr           __builtin__.unicode builtins.str
    __builtin__.xrange builtins.range         itertools.ifilter builtins.filter         itertools.imap builtins.map
    itertools.izip builtins.zip               itertools.ifilterfalse itertools.filterfalse
    itertools.izip_longest itertools.zip_longest                                        whichdb.whichdb dbm.whichdb
    UserDict.IterableUserDict collections.UserDict      UserList.UserList collections.UserList
    UserString.UserString collections.UserString        _socket.fromfd socket.fromfd
    socket._socketobject socket.SocketType              exceptions.StandardError builtins.Exception
    multiprocessing.AuthenticationError multiprocessing.context.AuthenticationError
    multiprocessing.BufferTooShort multiprocessing.context.BufferTooShort
    multiprocessing.ProcessError multiprocessing.context.ProcessError
    multiprocessing.TimeoutError multiprocessing.context.TimeoutError
    multiprocessing.process.Process multiprocessing.context.Process
    multiprocessing.forking.Popen multiprocessing.popen_fork.Popen
    _multiprocessing.Connection multiprocessing.connection.Connection
    urllib.ContentTooShortError urllib.error.ContentTooShortError  urllib2.HTTPError urllib.error.HTTPError
    urllib2.URLError urllib.error.URLError    urllib.getproxies urllib.request.getproxies
    urllib.pathname2url urllib.request.pathname2url     urllib.url2pathname urllib.request.url2pathname
    urllib.urlcleanup urllib.request.urlcleanup         urllib.urlopen urllib.request.urlopen
    urllib.urlretrieve urllib.request.urlretrieve       urllib.urlencode urllib.parse.urlencode
    urllib.quote urllib.parse.quote           urllib.quote_plus urllib.parse.quote_plus
    urllib.unquote urllib.parse.unquote       urllib.unquote_plus urllib.parse.unquote_plus
"""


def _pairs(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return {(module, name): (module, name)} from dotted names, each followed by what it is called today."""
    parts = [word.rpartition(".") for word in text.split()]
    names = [(module, name) for module, _, name in parts]
    return dict(zip(names[::2], names[1::2], strict=True))


_NAMES = _pairs(_MOVED)


def known_as(module: str, name: str) -> tuple[str, str]:
    """Return the (module, name) by which today's Python and numpy know what a file calls so."""
    if (module, name) in _NAMES:
        return _NAMES[module, name]
    if module == "exceptions":
        return "builtins", name
    if module == "numpy.core" or module.startswith("numpy.core."):
        return f"numpy._core{module[len('numpy.core') :]}", name
    return _MODULES.get(module, module), name


WOULD_RUN = "would run a program when loaded by Python; not run here"
WOULD_REACH = "would reach for files or the network when loaded by Python; not done here"
WOULD_FETCH = "would fetch, set or wrap something by its name when loaded by Python; not done here"

_ALL: frozenset[str] = frozenset()
"""Stands for every name of a module and of the modules in it."""


def _table(text: str) -> dict[str, frozenset[str]]:
    """Return {module: names} from lines ``module: name name ...``, or ``module ...`` for all that they hold."""
    table: dict[str, frozenset[str]] = {}
    for line in text.split("\n"):
        module, colon, names = line.strip().partition(":")
        if colon:
            table[module] = frozenset(names.split())
        else:
            table |= dict.fromkeys(line.split(), _ALL)
    return table


RUNS_PROGRAMS = _table("""
    os posix nt subprocess _posixsubprocess _winapi sys runpy importlib _frozen_importlib _frozen_importlib_external imp
    pkgutil zipimport zipapp pkg_resources setuptools distutils pip ensurepip venv idlelib pty ctypes _ctypes cffi code
    codeop marshal pickle _pickle shelve dill cloudpickle jsonpickle multiprocessing webbrowser bdb pdb cProfile profile
    trace timeit doctest pydoc lib2to3 commands popen2 popen paramiko fabric sh pexpect plumbum asyncio.unix_events
    torch.hub torch.package torch.utils.cpp_extension torch.utils.bottleneck torch.utils.collect_env numpy.f2py
    numpy.distutils numpy.testing
    builtins: eval exec compile __import__ breakpoint help input execfile apply reload
    asyncio: run create_subprocess_exec create_subprocess_shell
    threading: Thread Timer
    _thread: start_new_thread start_new
    atexit: register
    functools: reduce
    types: FunctionType CodeType LambdaType
    logging.config: dictConfig fileConfig listen
    platform: popen
    site: main execsitecustomize execusercustomize
    joblib: load
    joblib.numpy_pickle: load
    numpy: load
    numpy.lib.npyio: load
    numpy.lib.format: read_array
    pandas: read_pickle eval
    pandas.io.pickle: read_pickle
    keras.models: load_model
    tensorflow: load_library load_op_library
    torch: load compile
    torch.serialization: load _load _legacy_load
    torch.jit: load script
    torch.fx.graph_module: reduce_graph_module reduce_package_graph_module reduce_deploy_graph_module _exec_with_source
    torch.utils._config_module: ConfigModule
    torch._dynamo.guards: GuardBuilder
    torch._inductor.codecache: compile_file PyCodeCache
""")
REACHES = _table("""
    shutil socket _socket ssl urllib http httplib requests aiohttp httpx ftplib smtplib poplib imaplib nntplib telnetlib
    socketserver tempfile glob fileinput mmap fcntl sqlite3 _sqlite3 dbm zipfile tarfile logging.handlers
    builtins: open
    io: open FileIO open_code
    _io: open FileIO open_code
    codecs: open
    linecache: getline getlines
    numpy: memmap save savetxt savez loadtxt genfromtxt DataSource
    torch: save
    torch.multiprocessing.reductions: rebuild_storage_fd rebuild_storage_filename rebuild_cuda_tensor
    torch.utils.model_zoo: load_url
""")
FETCHES = _table("""
    builtins: getattr setattr delattr hasattr vars dir globals locals map filter
    operator: attrgetter itemgetter methodcaller
    _operator: attrgetter itemgetter methodcaller
    functools: partial partialmethod
    copyreg: pickle add_extension constructor
""")
_TABLES: tuple[tuple[dict[str, frozenset[str]], Severity, str], ...] = (
    (RUNS_PROGRAMS, "warning", WOULD_RUN),
    (REACHES, "warning", WOULD_REACH),
    (FETCHES, "info", WOULD_FETCH),
)
_DOORS = frozenset({"__globals__", "__builtins__", "__subclasses__", "__import__", "__loader__", "__code__", "modules"})
"""Attributes by which a dotted name gets from a harmless module to any other."""
_DEEPEST = 12


def effect(module: str, name: str) -> tuple[Severity, str] | None:
    """Return what more than making an object a name would do, by its today's name: how serious, and a sentence's end.

    None says only that the name is in none of our tables.
    """
    parts = f"{module}.{name}".split(".", _DEEPEST)
    for table, severity, sentence in _TABLES:
        for i in range(1, len(parts)):
            names = table.get(".".join(parts[:i]))
            if names is not None and (names == _ALL or parts[i] in names):
                return severity, sentence
    inner = name.split(".")
    walked = len(inner) > 1 and not _DOORS.isdisjoint(inner)
    if walked or any(RUNS_PROGRAMS.get(part) == _ALL for part in inner[:-1]):
        return "warning", WOULD_RUN
    return None
