#!/usr/bin/env bash
# Runs everything that needs an NVIDIA GPU: the tests of kernels and of lesson 08's engine,
# lessons 05 to 10 with nbval, and the course's kernels under compute-sanitizer's four tools.
# Run it in the project's folder, with its environment active: bash tests/gpu.sh
set -uo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"  # the course need not be installed
failed=()
step() { printf '\n== %s\n' "$1"; shift; "$@" || failed+=("$*"); }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
nvcc --version | grep release
"$python" -c 'import torch; print("PyTorch", torch.__version__, "GPUs", torch.cuda.device_count())'

step "tests" "$python" -m pytest -q -n "${WORKERS:-4}" --every 1 tests/paged_attention tests/lessons_lib/cuda tests/lessons_lib/cuda_on_cpu tests/tools
step "lessons" "$python" -m pytest -q --nbval --nbval-current-env --nbval-cell-timeout=900 \
    solutions/0[5-9]_*.ipynb solutions/10_*.ipynb
"$python" tests/support/machine/gpu_sanitized.py --build  # not under the tools, where compiling takes long
for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all "$python" tests/support/machine/gpu_sanitized.py
done

if [ "${#failed[@]}" -gt 0 ]; then printf '\nfailed: %s\n' "${failed[@]}"; exit 1; fi
echo "all passed"
