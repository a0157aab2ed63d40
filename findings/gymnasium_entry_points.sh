#!/usr/bin/env bash
# Gymnasium 1.x does not read the entry point group "gymnasium.envs", by which an installed package makes its environments known.
#
# Guess before the first run: a package that declares the group is found when gymnasium is imported, in 1.x as in 0.29, so that
#   gymnasium.make knows its ids without an import of the package.
# Seen with gymnasium 0.29.1 and 1.2.2, one package that registers mine/Env-v0 in a function of the group: 0.29.1 has the id after
#   `import gymnasium`. 1.2.2 has not, and says nothing, though importlib.metadata shows the entry point. It has the id once
#   the function is called.
# Why it matters: environments of a package that was written for 0.29 are unknown, and the error asks whether it is installed.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir "$site/mine" "$site/mine-1.0.dist-info"
cat > "$site/mine/__init__.py" <<'PYTHON'
def register():
    from gymnasium.envs.registration import register as add

    add(id="mine/Env-v0", entry_point="mine:Env")
PYTHON
printf 'Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n' > "$site/mine-1.0.dist-info/METADATA"
printf '[gymnasium.envs]\n__root__ = mine:register\n' > "$site/mine-1.0.dist-info/entry_points.txt"
cat > "$folder/look.py" <<'PYTHON'
import warnings
from importlib.metadata import entry_points

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import gymnasium
declared = [point.value for point in entry_points(group="gymnasium.envs")]
known = "mine/Env-v0" in gymnasium.registry
print(gymnasium.__version__, declared, "known" if known else "unknown", f"{len(told)} warnings", end=" ")
import mine

known or mine.register()
print("and known when called" if "mine/Env-v0" in gymnasium.registry else "and unknown when called")
PYTHON
seen=""
for version in 0.29.1 1.2.2; do
  "$folder/venv/bin/pip" install --quiet "gymnasium==$version" 2> "$folder/pip.log" || { cat "$folder/pip.log" >&2; exit 1; }
  line=$("$folder/venv/bin/python" "$folder/look.py" 2>&1)
  echo "$line"
  seen+="$line"$'\n'
done
[[ "$seen" == *"0.29.1 ['mine:register'] known 0 warnings and known when called"* ]]
[[ "$seen" == *"1.2.2 ['mine:register'] unknown 0 warnings and known when called"* ]]
