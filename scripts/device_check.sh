#!/usr/bin/env bash
# Everything that only a real GPU can say, in one go and without a network or gRPC: builds, runs the
# kernels' and the backend's tests under compute-sanitizer, then the roofline table and the headline
# figures, and writes one JSON with its goals.
#   device_check.sh [--json FILE] [--build DIR | --no-build DIR]
#   device_check.sh --dry-run    the same path on the PTX machine with tiny sizes; no goal counts
# --build DIR: where to build (build/device); --no-build DIR: what is built there is taken. Ends with
# 0 when all passed, 1 when a test failed or a goal was missed, 2 when it cannot run here, 77 when no
# device is there. PF_JOBS: jobs of the build; PF_CHECK_SECONDS: most that one part may take (110).
set -euo pipefail
cd "$(dirname "$0")/.."

dry=0 build=build/device builds=1 json=""
while (($#)); do
  case $1 in
    --dry-run) dry=1 ;;
    --json) json=${2:?--json needs a file}; shift ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --no-build) build=${2:?--no-build needs a folder} builds=0; shift ;;
    *) echo "device_check.sh: $1: known are --dry-run, --json FILE, --build DIR, --no-build DIR" >&2; exit 2 ;;
  esac
  shift
done
json=${json:-$build/device_check.json}
seconds=${PF_CHECK_SECONDS:-110}
say() { printf '== %s\n' "$*"; }

if ((builds)); then
  say "building in $build (no server, no network)"
  generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DPF_SERVER=OFF -DPF_BENCH=OFF -DPF_CUDA=ON
  targets=(device_bench_dry)
  if ((!dry)); then targets=(device_kernel_test device_backend_test device_bench); fi
  cmake --build "$build" -j "${PF_JOBS:-$(nproc)}" --target "${targets[@]}"
fi
bin=$build/tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
entries=()
# part NAME COMMAND...: runs it, says how it went and keeps that for the JSON.
part() {
  local name=$1 status=0
  shift
  say "$name"
  timeout "$seconds" "$@" >"$work/out" 2>&1 || status=$?
  tail -n 400 "$work/out"
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
    *) result="failed ($status)"; failed=1 ;;
  esac
  say "$name: $result"
  entries+=("{\"name\": \"$name\", \"result\": \"$result\"}")
}

# finish BENCH_JSON: one JSON of the parts and what the bench wrote.
finish() {
  local list
  list=$(IFS=,; echo "${entries[*]}")
  {
    printf '{"dry_run": %s,\n "parts": [%s],\n "bench":\n' "$( ((dry)) && echo true || echo false)" "$list"
    if [ -s "$1" ]; then cat "$1"; else echo null; fi
    printf ',\n "goals": '
    if [ -s "$1" ]; then
      # The bench's own list, which stands last in its file.
      sed -n '/^ "goals": \[/,$p' "$1" | sed '1s/^ "goals": //; $s/}$//'
    else
      echo '[]'
    fi
    printf '}\n'
  } >"$json"
  say "written to $json"
}

if ((dry)); then
  part "bench on the PTX machine" "$bin/device_bench_dry" --tiny --json "$work/bench.json"
  finish "$work/bench.json"
  exit $failed
fi

if ! "$bin/device_bench" --tiny >"$work/out" 2>&1; then
  if grep -q SKIPPED "$work/out"; then cat "$work/out" >&2; exit 77; fi
fi
sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null || true)
# What measures the machine is no test of a device (tests/device/CMakeLists.txt).
only='*Budget*:*/Launches.*:GatherRowsBounds.*:CudaFootprint.*:GraphCache.*:*IsOneLaunch'
part "kernel tests" "$bin/device_kernel_test" --gtest_brief=1 --gtest_filter="-$only"
part "backend tests" "$bin/device_backend_test" --gtest_brief=1 --gtest_filter="-$only"
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck; do
    part "kernel tests under $tool" "$sanitizer" --tool $tool --error-exitcode 9 \
      "$bin/device_kernel_test" --gtest_brief=1 --gtest_filter="-$only"
  done
else
  say "no compute-sanitizer here: memcheck and racecheck are left out"
  entries+=('{"name": "compute-sanitizer", "result": "skipped: not there"}')
fi
part "rooflines and headline figures" "$bin/device_bench" --json "$work/bench.json"
finish "$work/bench.json"
exit $failed
