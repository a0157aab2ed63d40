#!/usr/bin/env bash
# junitparser's default reader knows the properties of a suite, and not those of a test case, which pytest writes.
#
# Guess before the first run: a TestCase has `properties()` as a TestSuite has, and gives the property that pytest's
#   `record_property` wrote.
# Seen with junitparser 5.0.3 and pytest 9.2.0: `junitparser.TestCase` has no `properties`, and nothing says that the file has some.
#   `junitparser.xunit2.TestCase` has them, and gives the property; the file itself does not name its flavour.
# Why it matters: tags of risks that stand on each case of a report are not seen by who reads it with this package.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "junitparser==5.0.3" "pytest==9.2.0" 2> /dev/null
printf 'def test_it(record_property):\n    record_property("tag", "a risk")\n' > "$folder/test_it.py"
(cd "$folder" && venv/bin/python -m pytest -q --junitxml=out.xml test_it.py > /dev/null)
"$folder/venv/bin/python" - "$folder/out.xml" <<'PYTHON'
import sys
from importlib.metadata import version

from junitparser import JUnitXml, xunit2

print("junitparser", version("junitparser"), "pytest", version("pytest"))
suite = next(iter(JUnitXml.fromfile(sys.argv[1])))
case = next(iter(suite))
by_xunit2 = next(iter(next(iter(xunit2.JUnitXml.fromfile(sys.argv[1])))))
known = {kind.__module__: hasattr(kind, "properties") for kind in (type(case), type(by_xunit2))}
values = [(entry.name, entry.value) for entry in by_xunit2.properties()]
print("suite.properties:", hasattr(suite, "properties"), "- case.properties:", known, values)
assert hasattr(suite, "properties")
assert known == {"junitparser.junitparser": False, "junitparser.xunit2": True}, known
assert values == [("tag", "a risk")], values
print("as seen")
PYTHON
