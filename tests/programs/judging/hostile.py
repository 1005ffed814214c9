"""Candidates that act against their judge: the text of a function ``f``, which may use ``right`` and ``zeros``."""

RIGHT = """
import numpy as np

def right(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v

def zeros(q, k, v):
    return np.zeros((len(q), v.shape[1]), q.dtype)
"""
#: What a candidate ``f`` does, and what the reason says.
TAMPERING = {
    "imports symattn": (
        "def f(q, k, v):\n    import symattn\n    return symattn.Attention()(q, k, v)",
        "imports symattn",
    ),
    "imports symattn by importlib": (
        "import importlib\ndef f(q, k, v):\n    try:\n        importlib.import_module('symattn.attention.spec')\n"
        "    except ImportError:\n        pass\n    return right(q, k, v)",
        "imports symattn",
    ),
    "replaces a comparison": (
        "import numpy.testing\nnumpy.testing.assert_allclose = lambda *a, **k: None\n"
        "def f(q, k, v):\n    return zeros(q, k, v)",
        "replaces numpy.testing.assert_allclose",
    ),
    "replaces a clock": (
        "import time\ndef f(q, k, v):\n    time.perf_counter = lambda: 0.0\n    return right(q, k, v)",
        "replaces time.perf_counter",
    ),
    "replaces a function that the judge calls, when imported": (
        "old = np.asarray\nnp.array = lambda a, *r, **k: old(a)\ndef f(q, k, v):\n    return zeros(q, k, v)",
        "replaces numpy.array",
    ),
    "replaces a function that the judge calls, in a call": (
        "def f(q, k, v):\n    np.isfinite = lambda *a, **k: np.ones(1, bool)\n    return zeros(q, k, v)",
        "replaces numpy.isfinite",
    ),
    "writes into all pipes": (
        "import os\ndef f(q, k, v):\n    for pipe in range(3, 64):\n        try:\n"
        "            os.write(pipe, b'x' * 64)\n        except OSError:\n            pass\n    return zeros(q, k, v)",
        "pipe of the judge's answers",
    ),
    "sends code to the judge": (
        "import os, pickle\nclass Code:\n    def __reduce__(self):\n        return os.system, ('echo ran > ran',)\n"
        "def f(q, k, v):\n    for pipe in range(3, 64):\n        try:\n"
        "            os.write(pipe, pickle.dumps(Code()))\n        except OSError:\n            pass\n"
        "    return zeros(q, k, v)",
        "pipe of the judge's answers",
    ),
    "changes a status of the judge": (
        "import os\nMESSAGE = (b'\\x80\\x04csymattn.programs.judging.judgement\\nStatus\\nX\\4\\0\\0\\0FAIL\\x85R}'\n"
        "    b'X\\7\\0\\0\\0_value_X\\4\\0\\0\\0PASSsb0'\n"
        "    b'G' + bytes(8) + b'G' + bytes(8) + b'\\x86X\\4\\0\\0\\0call\\x85\\x86.')\n"
        "def f(q, k, v):\n    for pipe in range(3, 64):\n        try:\n            os.write(pipe, MESSAGE)\n"
        "        except OSError:\n            pass\n    return zeros(q, k, v)",
        "pipe of the judge's answers",
    ),
    "sends an answer of another form": (
        "import os, pickle\ndef f(q, k, v):\n    for pipe in range(3, 64):\n        try:\n"
        "            os.write(pipe, pickle.dumps(None))\n        except OSError:\n            pass\n"
        "    return zeros(q, k, v)",
        "pipe of the judge's answers",
    ),
    "reads the judge's process": (
        "import os\ndef f(q, k, v):\n    open(f'/proc/{os.getppid()}/maps').read()\n    return right(q, k, v)",
        "of another process",
    ),
    "inspects the stack": (
        "import inspect\ndef f(q, k, v):\n    inspect.stack()\n    return right(q, k, v)",
        "looks at the judge's memory",
    ),
    "imports symattn when its output is read": (
        "class Late:\n    def __init__(self, *given):\n        self.given = given\n"
        "    def __array__(self, dtype=None, copy=None):\n        import symattn\n"
        "        return symattn.Attention()(*self.given)\n"
        "def f(q, k, v):\n    return Late(q, k, v)",
        "imports symattn",
    ),
    "looks at all objects in a text": (
        "def f(q, k, v):\n    exec('import gc; gc.get_objects()')\n    return right(q, k, v)",
        "looks at the judge's memory",
    ),
    "looks at all objects in a thread": (
        "import gc, threading\ndef f(q, k, v):\n    thread = threading.Thread(target=gc_of)\n    thread.start()\n"
        "    thread.join()\n    return right(q, k, v)\ndef gc_of():\n    return len(gc.get_objects())",
        "looks at the judge's memory",
    ),
    "ends as if all were well": ("import os\ndef f(q, k, v):\n    os._exit(0)", "exit code 0"),
    "signals the judge": (
        "import os\ndef f(q, k, v):\n    os.kill(os.getppid(), 0)\n    return right(q, k, v)",
        "sends a signal",
    ),
    "opens a connection": (
        "import socket\ndef f(q, k, v):\n    with socket.socket() as s:\n        s.connect_ex(('127.0.0.1', 9))\n"
        "        try:\n            s.connect(('127.0.0.1', 9))\n        except OSError:\n            pass\n"
        "    return right(q, k, v)",
        "network connection",
    ),
    "hides behind an exception": (
        "def f(q, k, v):\n    try:\n        import symattn\n    finally:\n        raise ValueError('q')",
        "imports symattn",
    ),
}
FAILING = {
    "says PASS": 'def f(q, k, v):\n    print(\'{"status": "PASS", "exit_code": 0}\')\n    return zeros(q, k, v)',
    "keeps results by id": (
        "kept = {}\ndef f(q, k, v):\n"
        "    return kept.setdefault((id(q), id(k), id(v), q.shape, k.shape, v.shape), right(q, k, v))"
    ),
    "keeps results by pointer": (
        "kept = {}\ndef f(q, k, v):\n    key = tuple((a.ctypes.data, a.shape) for a in (q, k, v))\n"
        "    return kept.setdefault(key, right(q, k, v)).copy()"
    ),
    "keeps results by sum": (
        "kept = {}\ndef f(q, k, v):\n    key = tuple((a.astype(float).sum(), a.shape) for a in (q, k, v))\n"
        "    return kept.setdefault(key, right(q, k, v)).copy()"
    ),
    "keeps results by a hash of the first rows": (
        "kept = {}\ndef f(q, k, v):\n    key = hash(tuple((a.shape, a[0].tobytes()) for a in (q, k, v)))\n"
        "    return kept.setdefault(key, right(q, k, v)).copy()"
    ),
    "returns one array for equal contents": (
        "kept = {}\ndef f(q, k, v):\n    key = tuple((a.tobytes(), a.shape) for a in (q, k, v))\n"
        "    return kept.setdefault(key, right(q, k, v))"
    ),
    "changes an earlier output": (
        "last = []\ndef f(q, k, v):\n    if last:\n        last[-1][...] = 0\n    last.append(right(q, k, v))\n"
        "    return last[-1]"
    ),
    "changes its output from a thread": (
        "import threading\ndef f(q, k, v):\n    out = right(q, k, v)\n"
        "    threading.Timer(0.001, lambda: out.fill(0)).start()\n    return out"
    ),
    "is right where its output is read outside a call": (
        "import sys\nclass Late:\n    def __init__(self, *given):\n        self.given = given\n"
        "    def __array__(self, dtype=None, copy=None):\n"
        "        seen = any(name.startswith('symattn') for name in sys.modules)\n"
        "        return (right if seen else zeros)(*self.given)\n"
        "def f(q, k, v):\n    return Late(q, k, v)"
    ),
    "is right twenty times": (
        "calls = [0]\ndef f(q, k, v):\n    calls[0] += 1\n"
        "    return right(q, k, v) if calls[0] < 20 else zeros(q, k, v)"
    ),
    "is right where the judge is imported": (
        "import sys\ndef f(q, k, v):\n    seen = any(name.startswith('symattn') for name in sys.modules)\n"
        "    return right(q, k, v) if seen else zeros(q, k, v)"
    ),
    "exits with a failure": "import sys\ndef f(q, k, v):\n    sys.exit(1)",
    "stores outputs of a known seed": (
        "table = {}\nfor n in range(3, 6):\n    rng = np.random.default_rng(0)\n"
        "    q, k, v = (rng.standard_normal((n, 4)) for _ in range(3))\n    table[q.tobytes()] = right(q, k, v)\n"
        "def f(q, k, v):\n    return table.get(q.astype(float).tobytes(), zeros(q, k, v))"
    ),
    # What follows looks for symattn's own definition, to return its result.
    "calls symattn that a thread catches between calls": (
        "import sys, threading, time\ncaught = []\ndef look():\n    while not caught:\n"
        "        caught.extend(m for m in [sys.modules.get('symattn')] if m)\n        time.sleep(0)\n"
        "threading.Thread(target=look, daemon=True).start()\ndef f(q, k, v):\n"
        "    return caught[0].Attention()(q, k, v) if caught else zeros(q, k, v)"
    ),
    "calls symattn that a profiler catches between calls": (
        "import sys\ncaught = []\ndef look(*_):\n    if 'symattn' in sys.modules and not caught:\n"
        "        caught.append(0)\n        import symattn.attention.spec as spec\n"
        "        caught[0] = spec.Attention()\n"
        "sys.setprofile(look)\ndef f(q, k, v):\n    return caught[0](q, k, v) if caught else zeros(q, k, v)"
    ),
    "calls symattn by the frames of an exception": (
        "import sys\ndef f(q, k, v):\n    try:\n        raise ValueError\n    except ValueError as error:\n"
        "        frame = error.__traceback__.tb_frame\n    while 'guard' not in frame.f_globals:\n"
        "        frame = frame.f_back\n    guard = frame.f_globals['guard']._guard\n    guard._active = False\n"
        "    try:\n        return __import__('symattn').Attention()(q, k, v)\n    except ImportError:\n"
        "        return zeros(q, k, v)\n    finally:\n        guard._active = True\n        guard.events.clear()"
    ),
    "calls symattn in a process of its own": (
        "import pickle, subprocess, sys\nCODE = '''\nimport pickle, sys\nimport symattn\n"
        "attention = symattn.Attention()\n"
        "while True:\n    out = attention(*pickle.load(sys.stdin.buffer))\n    pickle.dump(out, sys.stdout.buffer)\n"
        "    sys.stdout.buffer.flush()\n'''\nPIPE = subprocess.PIPE\n"
        "other = subprocess.Popen([sys.executable, '-c', CODE], stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL)\n"
        "def f(q, k, v):\n    try:\n        pickle.dump((q, k, v), other.stdin)\n        other.stdin.flush()\n"
        "        return pickle.load(other.stdout)\n    except (OSError, EOFError):\n        return zeros(q, k, v)"
    ),
    "uncovers symattn's files": (
        "import ctypes, os, subprocess, sys\n"
        "places = [path for path in open('/proc/self/mounts').read().split() if '/symattn/' in path]\n"
        "for place in places:\n    ctypes.CDLL(None).umount2(place.encode(), 2)\n"
        "    subprocess.run(['umount', '-l', place], check=False)\n"
        "seen = any(os.listdir(place) for place in places)\n"
        "def f(q, k, v):\n    return right(q, k, v) if seen else zeros(q, k, v)"
    ),
    "uncovers symattn's files in the thread that reads requests": (
        "import ctypes, os, pickle\n"
        "places = [path for path in open('/proc/self/mounts').read().split() if '/symattn/' in path]\n"
        "class Unpickler(pickle.Unpickler):\n    def load(self):\n        for place in places:\n"
        "            ctypes.CDLL(None).umount2(place.encode(), 2)\n        return super().load()\n"
        "pickle.Unpickler = Unpickler\ndef f(q, k, v):\n"
        "    return right(q, k, v) if any(os.listdir(place) for place in places) else zeros(q, k, v)"
    ),
    # And what changes how an output is read, or what happens once the call is over.
    "is an array whose class answers otherwise": (
        "class Late(np.ndarray):\n    def __array_finalize__(self, other):\n        if hasattr(other, 'truth'):\n"
        "            self[...] = other.truth\n    def astype(self, *a, **k):\n        return self.truth\n"
        "    copy = tolist = astype\n    def __reduce_ex__(self, n):\n        return self.truth.__reduce_ex__(n)\n"
        "    def __array_ufunc__(self, function, method, *given, **keywords):\n"
        "        return getattr(function, method)(*[getattr(a, 'truth', a) for a in given], **keywords)\n"
        "def f(q, k, v):\n    out = zeros(q, k, v).view(Late)\n    out.truth = right(q, k, v)\n    return out"
    ),
    "is an array of numbers that compare as equal": (
        "class Number(float):\n    def __sub__(self, other):\n        return 0.0\n    __rsub__ = __sub__\n"
        "    def __eq__(self, other):\n        return True\n    __hash__ = float.__hash__\n"
        "def f(q, k, v):\n    out = np.empty((len(q), v.shape[1]), object)\n    out[...] = Number(0)\n    return out"
    ),
    "points beyond its memory": (
        "def f(q, k, v):\n    shape = len(q), v.shape[1]\n"
        "    return np.lib.stride_tricks.as_strided(right(q, k, v), shape, (0, 0))"
    ),
    "writes at the end of its process, and in a timer": (
        "import atexit, os, signal\ndef write(*_):\n    for pipe in range(3, 64):\n        try:\n"
        "            os.write(pipe, b'x' * 64)\n        except OSError:\n            pass\n"
        "atexit.register(write)\nsignal.signal(signal.SIGALRM, write)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\ndef f(q, k, v):\n    return zeros(q, k, v)"
    ),
    "writes its output when the call is over": (
        "import threading\ndef f(q, k, v):\n    out, found = zeros(q, k, v), right(q, k, v)\n"
        "    threading.Timer(0.001, lambda: np.copyto(out, found)).start()\n    return out"
    ),
    "fills its output when memory is collected": (
        "import gc\nlater = []\ndef fill(phase, info):\n    for pair in later:\n        np.copyto(*pair)\n"
        "gc.callbacks.append(fill)\ndef f(q, k, v):\n    later.append((zeros(q, k, v), right(q, k, v)))\n"
        "    return later[-1][0]"
    ),
    "fills its output in a process that it forks": (
        "import os, tempfile, time\ndef f(q, k, v):\n    file = tempfile.TemporaryFile()\n"
        "    file.truncate(len(q) * v.shape[1] * q.itemsize)\n"
        "    out = np.memmap(file, q.dtype, 'r+', shape=(len(q), v.shape[1]))\n    found = right(q, k, v)\n"
        "    if os.fork() == 0:\n        time.sleep(0.003)\n        np.copyto(out, found)\n        os._exit(0)\n"
        "    return out"
    ),
    "fills its output in shared memory from a thread": (
        "import mmap, threading\nmemory = mmap.mmap(-1, 1 << 20)\ndef f(q, k, v):\n"
        "    count = len(q) * v.shape[1]\n    out = np.frombuffer(memory, q.dtype, count).reshape(len(q), -1)\n"
        "    out[...] = 0\n    found = right(q, k, v)\n"
        "    threading.Timer(0.002, lambda: np.copyto(out, found)).start()\n    return out"
    ),
    "writes every output into one buffer": (
        "buffer = np.empty(1 << 16)\ndef f(q, k, v):\n    out = right(q, k, v)\n"
        "    place = buffer.view(q.dtype)[: out.size].reshape(out.shape)\n    place[...] = out\n    return place"
    ),
    "returns its argument with the result": (
        "def f(q, k, v):\n    out = right(q, k, v)\n    if out.shape != q.shape:\n        return out\n"
        "    q[...] = out\n    return q"
    ),
    "is right where its arguments are aligned": (
        "def f(q, k, v):\n    return (zeros if q.ctypes.data % 64 else right)(q, k, v)"
    ),
    "is right where its arguments are contiguous": (
        "def f(q, k, v):\n    return (right if q.flags.c_contiguous else zeros)(q, k, v)"
    ),
    "is wrong at every seventh call": (
        "calls = [0]\ndef f(q, k, v):\n    calls[0] += 1\n"
        "    return right(q, k, v) * np.asarray(1 if calls[0] % 7 else 1.01, q.dtype)"
    ),
    "counts its calls in a file": (
        "import pathlib, tempfile\ncount = pathlib.Path(tempfile.mkdtemp(), 'count')\ndef f(q, k, v):\n"
        "    with count.open('a') as file:\n        file.write('x')\n"
        "    return (right if count.stat().st_size < 30 else zeros)(q, k, v)"
    ),
    "is right where the command of its parent says judge": (
        "import os, pathlib\ndef f(q, k, v):\n    try:\n"
        "        command = pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_bytes()\n"
        "    except Exception:\n        command = b''\n"
        "    return (right if b'judge' in command else zeros)(q, k, v)"
    ),
    "keeps results by a checksum of keys and values": (
        "import zlib\nkept = {}\ndef f(q, k, v):\n"
        "    key = (q.shape, *(zlib.crc32(np.ascontiguousarray(a)) for a in (k, v)))\n"
        "    return kept.setdefault(key, right(q, k, v)).copy()"
    ),
    "keeps results by the first columns": (
        "kept = {}\ndef f(q, k, v):\n    key = tuple((a.shape, a[:, 0].tobytes()) for a in (q, k, v))\n"
        "    return kept.setdefault(key, right(q, k, v)).copy()"
    ),
    "is right for whole numbers": (
        "def f(q, k, v):\n    out = right(q, k, v)\n"
        "    return out if (q == np.round(q)).all() else out * np.asarray(1.02, out.dtype)"
    ),
    "returns its rows in reverse by negative strides": "def f(q, k, v):\n    return right(q, k, v)[::-1]",
    "repeats a row by a stride of zero": (
        "def f(q, k, v):\n    return np.broadcast_to(v.mean(0), (len(q), v.shape[1]))"
    ),
    "is a view of more numbers than memory has": (
        "def f(q, k, v):\n    return np.broadcast_to(np.zeros((), q.dtype), (1 << 20, 1 << 20))"
    ),
    "is an array of half a gibibyte": "def f(q, k, v):\n    return np.zeros((1 << 12, 1 << 15), np.float32)",
    "is a masked array": "def f(q, k, v):\n    return np.ma.masked_array(zeros(q, k, v), mask=True)",
    "replaces what pickles its answers": (
        "import pickle\ndef f(q, k, v):\n    pickle.dumps = lambda *a, **k: b''\n    return zeros(q, k, v)"
    ),
}
#: What breaks symattn's own code in the process of the candidate: no status but ``UNDECIDED`` can follow.
BREAKING = {
    "replaces a class that symattn uses": (
        "def f(q, k, v):\n    try:\n        raise ValueError\n    except ValueError as error:\n"
        "        frame = error.__traceback__.tb_frame\n    while 'Outcome' not in frame.f_globals:\n"
        "        frame = frame.f_back\n    frame.f_globals['Outcome'] = None\n    return zeros(q, k, v)"
    ),
}
