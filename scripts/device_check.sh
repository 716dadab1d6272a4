#!/usr/bin/env bash
# Everything that only a real GPU can say, in one go and without a network or gRPC: builds for the
# GPU that is there, runs the kernels' and the backend's tests (the engine's text with drafts equals
# the text without, on the device), the roofline table and the headline figures, the kernels' tests
# once more under compute-sanitizer, and writes one JSON of it all.
#   device_check.sh [--json FILE] [--build DIR | --no-build DIR] [--third-party DIR]
#   device_check.sh --dry-run        the same path on the PTX machine with tiny sizes; no goal counts
#   device_check.sh --collect DIR    copies what a bare machine lacks into DIR (5 MB), to be carried
#                                    there and named with --third-party: googletest, nlohmann/json
# --build DIR: where to build (build/device); --no-build DIR: what is built there is taken. Ends with
# 0 when all passed, 1 when a test failed or a goal was missed, 2 when it cannot run here, 77 when no
# device is there. PF_JOBS: jobs of the build; PF_CHECK_SECONDS: most that all parts may take behind
# the build (350).
set -euo pipefail
cd "$(dirname "$0")/.."

dry=0 build=build/device builds=1 json="" third_party=""
while (($#)); do
  case $1 in
    --dry-run) dry=1 ;;
    --json) json=${2:?--json needs a file}; shift ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --no-build) build=${2:?--no-build needs a folder} builds=0; shift ;;
    --third-party) third_party=$(realpath "${2:?--third-party needs a folder}"); shift ;;
    --collect)
      to=${2:?--collect needs a folder}
      for from in /usr/src/googletest /usr/include/nlohmann; do
        [ -d $from ] || { echo "device_check.sh: $from is not here; run scripts/setup.sh" >&2; exit 2; }
      done
      mkdir -p "$to/include"
      cp -r /usr/src/googletest "$to/"
      cp -r /usr/include/nlohmann "$to/include/"
      exit 0 ;;
    *)
      echo "device_check.sh: $1: known are --dry-run, --json FILE, --build DIR, --no-build DIR," \
        "--third-party DIR and --collect DIR" >&2
      exit 2 ;;
  esac
  shift
done
json=${json:-$build/device_check.json}
say() { printf '== %s\n' "$*"; }

# "9.0" -> sm_90
device_arch() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -n '1s/\./''/; 1s/^/sm_/p'; }

if ((builds)); then
  options=(-DCMAKE_BUILD_TYPE=Release -DPF_SERVER=OFF -DPF_BENCH=OFF -DPF_CUDA=ON -DPF_DEVICE_CHECK=ON
    -DPF_WERROR=OFF "-DPF_THIRD_PARTY=$third_party")
  targets=(device_bench_dry)
  if ((!dry)); then
    arch=$(device_arch)
    if [ -z "$arch" ]; then echo "device_check.sh: nvidia-smi shows no GPU" >&2; exit 77; fi
    options+=("-DPF_CUDA_ARCHITECTURES=$arch")
    targets=(device_kernel_test device_backend_test device_bench)
  fi
  say "building in $build${arch:+ for $arch} (no server, no network)"
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  cmake -S . -B "$build" "${options[@]}"
  cmake --build "$build" -j "${PF_JOBS:-$(nproc)}" --target "${targets[@]}"
fi
bin=$build/tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
entries=()
began=$SECONDS
left() { echo $((${PF_CHECK_SECONDS:-350} - (SECONDS - began))); }
# note NAME RESULT [SECONDS]: says how a part went and keeps that for the JSON.
note() {
  say "$1: $2"
  entries+=("{\"name\": \"$1\", \"result\": \"$2\", \"seconds\": ${3:-0}}")
}
# part NAME COMMAND...
part() {
  local name=$1 status=0 result at=$SECONDS
  shift
  if (($(left) <= 0)); then failed=1; note "$name" "no time left"; return; fi
  say "$name"
  timeout "$(left)" "$@" >"$work/out" 2>&1 || status=$?
  tail -n 400 "$work/out"
  case $status in
    0) result=passed ;;
    3) result="goals missed" failed=1 ;;
    77) result=skipped ;;
    124) result="cut off" failed=1 ;;
    *) result="failed ($status)" failed=1 ;;
  esac
  note "$name" "$result" $((SECONDS - at))
}
# sharded COMMAND...: a GoogleTest program, its tests dealt out to several processes.
sharded() {
  local n=8 i status=0 pids=()
  for ((i = 0; i < n; ++i)); do
    GTEST_TOTAL_SHARDS=$n GTEST_SHARD_INDEX=$i "$@" >"$work/shard$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < n; ++i)); do
    wait "${pids[i]}" || { status=$?; echo "shard $i ended with $status:"; }
    tail -n 50 "$work/shard$i"
  done
  return $status
}
export -f sharded
export work

finish() { # BENCH_JSON: one JSON of the parts and what the bench wrote
  {
    printf '{"dry_run": %s,\n "parts": [%s],\n "bench": ' "$( ((dry)) && echo true || echo false)" \
      "$(IFS=,; echo "${entries[*]}")"
    if [ -s "$1" ]; then cat "$1"; else echo null; fi
    printf '}\n'
  } >"$json"
  say "written to $json"
}

if ((dry)); then
  part "bench on the PTX machine" "$bin/device_bench_dry" --tiny --json "$work/bench.json"
  finish "$work/bench.json"
  # The JSON of a real run has the same form: kernels, and every goal that needs no cuBLAS.
  python3 - "$json" <<'PYTHON' || failed=1
import json, sys
told = json.load(open(sys.argv[1]))
assert told["dry_run"] and [p["result"] for p in told["parts"]] == ["passed"], told["parts"]
goals = {g["id"] for g in told["bench"]["goals"]}
assert goals == {"attention-decode", "tree-sharing", "single-stream", "end-to-end-1"}, goals
assert all(k["seconds"] > 0 and k["bytes"] > 0 for k in told["bench"]["kernels"]) and told["bench"]["kernels"]
PYTHON
  exit $failed
fi

if ! "$bin/device_bench" --tiny >"$work/out" 2>&1; then
  cat "$work/out" >&2
  if grep -q SKIPPED "$work/out"; then exit 77; fi
  exit 1
fi
# cuBLAS of a Python package, where the toolkit's is not on the loader's path.
cublas=$(python3 -c 'import glob, nvidia; print(*[f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib*/libcublas.so*")][:1])' 2>/dev/null || true)
if [ -n "$cublas" ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$cublas"); fi
filter=--gtest_filter=-$(grep -v '^#' tests/device/machine_only.txt | paste -sd:)
part "kernel tests" bash -c 'sharded "$@"' - "$bin/device_kernel_test" --gtest_brief=1 "$filter"
part "backend and engine tests" bash -c 'sharded "$@"' - "$bin/device_backend_test" --gtest_brief=1 "$filter"
part "rooflines and headline figures" "$bin/device_bench" --json "$work/bench.json"
sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null || true)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    part "kernel tests under $tool" bash -c 'sharded "$@"' - "$sanitizer" --tool $tool --error-exitcode 9 \
      "$bin/device_kernel_test" --gtest_brief=1 "$filter"
  done
else
  note compute-sanitizer "skipped: not there"
fi
finish "$work/bench.json"
exit $failed
