// Kernels that begin while the one before them still runs (programmatic dependent launch).
// What does not depend on that one, such as a product's weights, is then there when it ends.
#pragma once

#include <cuda_runtime.h>

// Allows the next kernel of the stream to begin, as soon as all blocks of this one have said
// so and there is room for its blocks.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before has ended, and all before that one, and what they have written
// can be read. Until then a kernel reads only what none of them writes, and writes nothing.
// Every thread calls it: a kernel has not ended before all that came before it have.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel. early: whether it may begin before the one before it has ended. Needs a
// GPU of compute capability 9.0 or more. Returns 0, or the error.
template <auto kernel, typename... Arguments>
int launch_maybe_early(bool early, dim3 grid, int num_threads, int shared_bytes,
                       cudaStream_t stream, Arguments... arguments) {
#ifdef __CUDACC__
  if (early) {
    // A multiprocessor changes its share of shared memory only when it is empty. So all
    // kernels that overlap ask for the same.
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = num_threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }
#endif
  kernel<<<grid, num_threads, shared_bytes, stream>>>(arguments...);
  return cudaGetLastError();
}
