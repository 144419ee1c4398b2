"""Names of CUDA that the CPU stand-in does not have. README.md has the same table."""

import re

from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda_on_cpu.code_text import mask

# Each reason, with the functions, types and headers that are missing for it.
_REASONS = {
    "memory here has no rows with gaps; ask cudaMalloc for all rows together": (
        "cudaMallocPitch cudaMalloc3D cudaMallocArray cudaMemcpy2D cudaMemcpy2DAsync "
        "cudaMemcpy3D cudaMemset2D cudaMemset3D cudaPitchedPtr"
    ),
    "there are no textures and surfaces; read the array itself": (
        "texture cudaTextureObject_t cudaSurfaceObject_t cudaCreateTextureObject "
        "cudaBindTexture tex1Dfetch tex1D tex2D tex3D surf2Dread surf2Dwrite"
    ),
    "it would free the tensors of PyTorch too": "cudaDeviceReset",
    "there is one device": (
        "cudaDeviceCanAccessPeer cudaDeviceEnablePeerAccess cudaMemcpyPeer "
        "cudaMemcpyPeerAsync cudaIpcGetMemHandle cudaIpcOpenMemHandle"
    ),
    "all memory is this computer's, so nothing moves": (
        "cudaMemPrefetchAsync cudaMemAdvise cudaHostRegister cudaHostUnregister "
        "cudaHostGetDevicePointer cudaPointerGetAttributes"
    ),
    "it depends on a GPU's registers; choose the threads yourself": (
        "cudaOccupancyMaxPotentialBlockSize cudaOccupancyMaxActiveBlocksPerMultiprocessor "
        "cudaFuncGetAttributes cudaFuncSetCacheConfig cudaDeviceSetCacheConfig "
        "cudaDeviceSetLimit cudaLimitMallocHeapSize cudaLimitPrintfFifoSize"
    ),
    "blocks run one after the other here, so they cannot wait for each other": (
        "cudaLaunchCooperativeKernel cudaLaunchKernelEx this_grid grid_group this_cluster "
        "cluster_group __cluster_dims__ this_multi_grid"
    ),
    "a stream does each thing at once here": (
        "cudaGraph_t cudaGraphExec_t cudaGraphLaunch cudaGraphInstantiate "
        "cudaStreamBeginCapture cudaStreamEndCapture cudaLaunchHostFunc cudaStreamAddCallback "
        "cudaStreamCreateWithPriority cudaDeviceGetStreamPriorityRange"
    ),
    "half types are only converted here; compute with __half2float or __bfloat162float": (
        "__hadd2 __hsub __hsub2 __hmul __hmul2 __hdiv __h2div __hfma __hfma2 __hneg __hmax "
        "__hmin __heq __hlt __hgt hexp hlog hsqrt hrsqrt h2exp __float2half2_rn"
    ),
    "tensor cores and asynchronous copies are instructions of a GPU": (
        "wmma mma.h cuda_pipeline.h __pipeline_memcpy_async __pipeline_commit "
        "__pipeline_wait_prior memcpy_async cooperative_groups/memcpy_async.h cuda_fp8.h"
    ),
    "of cooperative groups there are blocks, tiles and reduce": (
        "labeled_partition binary_partition inclusive_scan exclusive_scan "
        "cooperative_groups/scan.h"
    ),
    "the libraries that come with CUDA need a GPU": (
        "curand.h curand_kernel.h curandState cublas_v2.h cufft.h cusparse.h thrust cub "
        "cuda/atomic cuda/barrier cuda/pipeline cuda/std helper_cuda.h nvtx3"
    ),
    "write it with those that are here": (
        "erfinvf erfcinvf normcdfinvf cyl_bessel_i0f __vadd4 __vsub4 __vabsdiff4 "
        "__funnelshift_lc __funnelshift_rc"
    ),
    "it is a profiler's": "cudaProfilerStart cudaProfilerStop cuda_profiler_api.h",
}
LEFT_OUT = {name: reason for reason, names in _REASONS.items() for name in names.split()}

_UNKNOWN = re.compile(
    r"not declared|not been declared|undeclared|not name a type|unknown type|no member"
    r"|not a member|no type named|no template named"
)
# Names of half types do not count: perhaps only their header is missing.
_CUDAS = re.compile(r"(?!\w*(?:half|bfloat))(?:(?:cuda|CUDA)[A-Z_]\w*|cu[A-Z]\w*|__\w+)")
_PAGE = "lessons_lib/cuda_on_cpu/README.md lists what it has"


def explain(error: CompileError, sources: dict[str, str]) -> CompileError:
    """`error`, or an error that says which of CUDA's names in its line the stand-in lacks."""
    lines = sources.get(error.source or "", "").split("\n")
    if not error.line or error.line > len(lines):
        return error
    line = lines[error.line - 1]
    quoted = re.findall(r"['‘]([\w:]+)", error.reason)
    words = [word for name in quoted for word in name.split("::")]
    words += re.findall(r"[A-Za-z_]\w*", mask(line))
    if header := re.match(r'\s*#\s*include\s*[<"]([^>"]+)', line):
        folders = header[1].split("/")
        words = ["/".join(folders[:count]) for count in range(len(folders), 0, -1)]
    known = [word for word in words if word in LEFT_OUT]
    if known:
        reason = f"{known[0]} is not in the course's CPU stand-in: {LEFT_OUT[known[0]]}"
    elif _UNKNOWN.search(error.reason) and quoted and _CUDAS.fullmatch(quoted[0]):
        reason = f"{quoted[0]} is not in the course's CPU stand-in; {_PAGE}"
    else:
        return error
    message = f"{error.source}, line {error.line}: {reason}.\n    {line}"
    return CompileError(message, error.source, error.line, reason, error.output)
