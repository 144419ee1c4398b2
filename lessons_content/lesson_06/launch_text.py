"""Mistakes that a launcher's text shows once a case has failed, for 6.6."""

import math
import re

# bytes of dynamic shared memory that a kernel gets without asking, its static part included
LARGEST = 48 * 1024
ALL = 227 * 1024  # what a kernel can get, as on an H100; static shared memory counts as well
# A number is assigned where a condition belongs: in an if, or before the ? of a ternary.
NUMBER = r"\s*=(?!=)\s*(?:\d+|nullptr|NULL)\s*"
ASSIGNED = (
    rf"\b(?:if|while)\s*\(\s*\w+(?:(?:\.|->)\w+)*{NUMBER}(?:\)|&&|\|\|)"
    rf"|\bparams\.\w+{NUMBER}\)?\s*\?"
)


def shared_bytes_of(launch: str, text: str) -> int:
    """The shared memory of a launch: a number, or a variable with one value. Otherwise 0."""
    arguments = [argument.strip() for argument in re.split(r",(?![^(]*\))", launch)]
    value = arguments[2] if len(arguments) > 2 else ""
    if re.fullmatch(r"[a-zA-Z_]\w*", value):
        given = re.findall(rf"\b{value}\s*[-+*/]?=(?!=)([^;]*);", text)
        only = given[0] if len(given) == 1 else ""
        value = re.sub(r"^[^?]*\?(?:\s*0\s*:)?|:\s*0\s*$", "", only)
    value = value.replace("sizeof(float)", "4").strip()
    if not re.fullmatch(r"\(*\d+(?:\s*\*\s*\d+)*\)*", value):
        return 0
    return math.prod(map(int, re.findall(r"\d+", value)))


def name_from_text(source: str) -> str | None:
    """Mistakes of which the results can be anything."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    if re.search(ASSIGNED, text):
        return "assigned-not-compared"
    launches = re.findall(r"<<<(.*?)>>>", text, flags=re.DOTALL)
    is_fixed = any(LARGEST <= shared_bytes_of(launch, text) < ALL for launch in launches)
    return "fixed-score-buffer" if is_fixed else None
