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

step "tests" "$python" -m pytest -q -n "${WORKERS:-4}" --every 1 tests/paged_attention/attention/test_paged_kernel.py tests/lessons_lib/cuda/test_gpu.py \
    tests/paged_attention/attention/test_kernel_barriers.py tests/lessons_lib/cuda_on_cpu/test_cuda_bank.py tests/lessons_content/test_bug_hunt.py tests/paged_attention/ladder/test_ladder.py tests/paged_attention/attention/test_splits.py \
    tests/paged_attention/engine/fast/test_advance.py tests/paged_attention/ladder/test_self_planned.py tests/paged_attention/ladder/test_device_plan.py tests/paged_attention/ladder/test_check_table.py tests/lessons_lib/cuda/test_prepared.py \
    tests/paged_attention/prefill/test_prefill_kernels.py tests/paged_attention/engine/fast/test_fast_engine.py tests/paged_attention/engine/fast/test_fast_engine_fp8.py tests/paged_attention/engine/fast/test_fast_parts.py \
    tests/paged_attention/engine/fast/test_step_kernels.py tests/paged_attention/engine/fast/test_step_graph.py tests/paged_attention/engine/fast/test_fast_engine_waits.py \
    tests/paged_attention/engine/test_same_tokens.py tests/paged_attention/engine/parallel/test_shards.py tests/paged_attention/attention/test_fused.py tests/lessons_lib/cuda_on_cpu/test_cuda_shared_memory.py \
    tests/lessons_lib/cuda_on_cpu/test_cuda_grid.py tests/lessons_lib/cuda_on_cpu/test_cuda_language.py tests/lessons_lib/cuda_on_cpu/test_cuda_tutorial.py tests/lessons_lib/cuda_on_cpu/test_cuda_warps.py tests/paged_attention/attention/test_poison.py tests/paged_attention/attention/test_attention.py \
    tests/paged_attention/attention/test_decode.py tests/paged_attention/pool/test_kv_cache.py tests/paged_attention/engine/test_plug.py tests/tools/test_bench_ladder.py tests/paged_attention/attention/test_tensor_form.py
step "lessons" "$python" -m pytest -q --nbval --nbval-current-env --nbval-cell-timeout=900 \
    solutions/05_*.ipynb solutions/06_*.ipynb solutions/07_*.ipynb solutions/08_*.ipynb solutions/09_*.ipynb solutions/10_*.ipynb
"$python" tests/support/gpu_sanitized.py --build  # not under the tools, where compiling takes long
for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all "$python" tests/support/gpu_sanitized.py
done

if [ "${#failed[@]}" -gt 0 ]; then printf '\nfailed: %s\n' "${failed[@]}"; exit 1; fi
echo "all passed"
