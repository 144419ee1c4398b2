// The only device: this computer, with the limits of an H100.
#pragma once
#include "errors.h"
#include "language.h"

struct cudaDeviceProp {
  char name[256] = "CPU stand-in with the limits of an H100";
  size_t totalGlobalMem = size_t(80) << 30, sharedMemPerBlock = 48 * 1024;
  int regsPerBlock = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
  int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535};
  size_t totalConstMem = 64 * 1024;
  int major = 9, minor = 0;
  // Few, so that a grid with a block for each of them stays small here.
  int multiProcessorCount = 2;
  int integrated = 0, canMapHostMemory = 1, concurrentKernels = 1, ECCEnabled = 0;
  int asyncEngineCount = 1, unifiedAddressing = 1, memoryBusWidth = 5120;
  int l2CacheSize = 50 << 20, maxThreadsPerMultiProcessor = 2048;
  size_t sharedMemPerMultiprocessor = 228 * 1024, sharedMemPerBlockOptin = 227 * 1024;
  size_t reservedSharedMemPerBlock = 1024;
  int regsPerMultiprocessor = 65536, maxBlocksPerMultiProcessor = 32;
  int managedMemory = 1, concurrentManagedAccess = 1, cooperativeLaunch = 0;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  return cudaSetDevice(device);
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const cudaDeviceProp all;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = all.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int(all.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = all.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = all.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = all.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = all.minor;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = all.cooperativeLaunch;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(all.sharedMemPerBlockOptin);
  }
  return cudaSetDevice(device);
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}
