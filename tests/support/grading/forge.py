"""For cells that attack the wall around a sandbox."""

# For the cells below: the end of the pipe to the controller, and its messages.
FORGE = """
import ctypes, json, os, struct
def ends():
    for name in os.listdir('/proc/self/fd'):
        try:
            target = os.readlink('/proc/self/fd/' + name)
            if int(name) > 2 and target.startswith('pipe:'): yield int(name)
        except OSError: pass
def forge(*messages):
    for message in messages:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        data = struct.pack('>I', len(data)) + data
        for end in ends():
            try:
                rest = data
                while rest: rest = rest[os.write(end, rest):]
            except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
"""
