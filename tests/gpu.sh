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

step "tests" "$python" -m pytest -q -n "${WORKERS:-4}" --every 1 tests/test_paged_kernel.py tests/test_gpu.py \
    tests/test_kernel_barriers.py tests/test_cuda_bank.py tests/test_bug_hunt.py tests/test_ladder.py tests/test_splits.py \
    tests/test_advance.py tests/test_self_planned.py tests/test_device_plan.py tests/test_check_table.py tests/test_prepared.py \
    tests/test_prefill_kernels.py tests/test_fast_engine.py tests/test_fast_engine_fp8.py tests/test_fast_parts.py \
    tests/test_step_kernels.py tests/test_step_graph.py tests/test_fast_engine_waits.py \
    tests/test_same_tokens.py tests/test_shards.py tests/test_fused.py tests/test_cuda_shared_memory.py \
    tests/test_cuda_grid.py tests/test_cuda_language.py tests/test_cuda_tutorial.py tests/test_cuda_warps.py tests/test_poison.py tests/test_attention.py \
    tests/test_decode.py tests/test_kv_cache.py tests/test_plug.py tests/test_bench.py tests/test_tensor_form.py
step "lessons" "$python" -m pytest -q --nbval --nbval-current-env --nbval-cell-timeout=900 \
    solutions/05_*.ipynb solutions/06_*.ipynb solutions/07_*.ipynb solutions/08_*.ipynb solutions/09_*.ipynb solutions/10_*.ipynb
"$python" tests/gpu_sanitized.py --build  # not under the tools, where compiling takes long
for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all "$python" tests/gpu_sanitized.py
done

if [ "${#failed[@]}" -gt 0 ]; then printf '\nfailed: %s\n' "${failed[@]}"; exit 1; fi
echo "all passed"
