#!/usr/bin/env bash
# datasets: `map` gives the old results when the code of an imported function has changed.
#
# Guess before the first run: the fingerprint of `Dataset.map` is a digest of the function's code, so that another function of that
#   name is another step, wherever it stands.
# Seen with datasets 5.2.0 (dill 0.4.1): a function of the script itself is hashed by its code, and is run again when that changes. One
#   that is imported from a module is hashed by its module and name: after its code has changed, `map` reads the cached file of the old
#   code, without a word. The same holds for a function that the script's own one calls from a module.
# Why it matters: cleaning, tokenizing and filtering of a corpus usually stand in a module. A mended reader trains on what the broken
#   one wrote. Name `new_fingerprint`, or clear the cache, when such code changes.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "datasets==5.2.0" "dill==0.4.1"
  python=$folder/venv/bin/python
fi
cd "$folder"
printf 'text\nHello There\n' > corpus.csv
script() {
  cat > "$1.py" <<PYTHON
import datasets
$2

datasets.disable_progress_bars()
rows = datasets.load_dataset("csv", data_files="corpus.csv", cache_dir="cache-$1")["train"]
print(rows.map(clean)["text"][0])
PYTHON
}
seen=""
for way in lower upper; do
  printf 'def clean(row):\n    return {"text": row["text"].%s()}\n\n\ndef cased(text):\n    return text.%s()\n' "$way" "$way" > cleaning.py
  script imported "from cleaning import clean"
  script own "def clean(row):
    return {'text': row['text'].$way()}"
  script calling "from cleaning import cased
def clean(row):
    return {'text': cased(row['text'])}"
  for name in imported own calling; do
    said=$("$python" "$name.py" 2>/dev/null)
    echo "code says $way, function is $name: $said"
    seen="$seen$name=$said;"
  done
done
"$python" -c "import datasets, dill; print('datasets', datasets.__version__, 'dill', dill.__version__)"
[ "$seen" = "imported=hello there;own=hello there;calling=hello there;imported=hello there;own=HELLO THERE;calling=hello there;" ]
