"""Where the text of a class lets go of its mutex and goes on with its data. No test would see it: the gap is too short."""

import re

TOKEN = re.compile(
    r"(?P<open>\{)|(?P<close>\})"
    r"|\b(?:lock_guard|unique_lock|scoped_lock|shared_lock)\s*(?:<[^;>]*>)?\s+(?P<guard>\w+)\s*[({][^;]*;"
    r"|(?P<held>\w+)\s*\.\s*(?P<call>lock|unlock)\s*\(\s*\)"
    r"|\bFreeList\s+(?P<list>\w+)|\bvector\s*<[^;{}()]*>\s+(?P<vector>\w+)"
    r"|\b(?P<data>\w+)\s*(?:\[|\.\s*(?P<method>\w+))")
NO_METHOD = re.compile(r'(?:\b(?:class|struct|namespace)\b[^;{}()]*|extern\s*"C"\s*)$')  # what stands before a class's brace


def works_after_release(source: str) -> bool:
    """Whether a method touches the free list or a count after it has given the lock back. source: without comments.

    Only a release that every path passes counts: a guard's closing brace, or an `unlock()` outside of all inner blocks.
    """
    scopes, locked, released = [], False, False  # for each open brace of a method the guards that it has; a lock by hand
    lists, vectors, touched = set(), set(), []   # members, and what is used without the lock after a release
    for token in TOKEN.finditer(source):
        before = source[:token.start()]
        if token["open"]:
            if scopes or not NO_METHOD.search(before):
                locked, released = bool(scopes) and locked, bool(scopes) and released
                scopes.append(set())
        elif not scopes:
            lists.add(token["list"]), vectors.add(token["vector"])
        elif token["close"]:
            released |= bool(scopes.pop())
        elif token["guard"]:
            scopes[-1].add(token["guard"])
        elif token["call"] == "lock":
            locked = True
        elif token["call"] and len(scopes) == 1 and re.search(r"[;{}]\s*$", before):
            scopes[-1].discard(token["held"])
            locked, released = False, True
        elif token["data"] and released and not locked and not any(scopes):
            touched.append((token["data"], token["method"]))
    return any(name in lists or name in vectors and method != "size" for name, method in touched)  # no count is added later
