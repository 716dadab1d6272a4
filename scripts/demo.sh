#!/usr/bin/env bash
# From nothing to a streamed answer: demo.sh ["prompt"]. Installs what is missing, builds, fetches the
# small real model, starts the server on this machine, asks it through gRPC, and stops it. Then the same
# engine says how much faster it was than without speculation.
set -euo pipefail
cd "$(dirname "$0")/.."

prompt=${1:-Explain why the sky is blue.}
scripts/setup.sh
scripts/get_model.sh smollm2
echo "== building"
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release --target pilotfish | tail -n 1

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
draft=models/drafts/smollm2-eagle/model.gguf drafters=ngram,eagle
log=build/demo-server.log
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
build/release/pilotfish serve --model $model --draft $draft --speculation $drafters \
  --listen 127.0.0.1:"$port" --metrics-listen "" >$log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
for _ in $(seq 150); do
  build/release/pilotfish health --target 127.0.0.1:"$port" >/dev/null 2>&1 && break
  kill -0 $server 2>/dev/null || { echo "demo.sh: the server ended:" >&2; cat $log >&2; exit 1; }
  sleep 0.2
done
echo "== the answer, through gRPC:"
build/venv/bin/python scripts/ask.py --target 127.0.0.1:"$port" "$prompt"
kill $server
wait $server || true
trap - EXIT
echo "== the speed, against K = 0 in the same process:"
build/release/pilotfish generate --model $model --draft $draft --speculation $drafters \
  --chat --prompt "$prompt" --stats --quiet
