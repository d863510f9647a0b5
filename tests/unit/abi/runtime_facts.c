/* The sizes and offsets of the runtime's structures: compiled once against ours and once against
 * NVIDIA's. */
#include RUNTIME_HEADER

#include <stddef.h>

#include "cuda_abi.h"

#define S(type) { "sizeof " #type, sizeof(type) },
#define O(type, field) { #type "." #field, offsetof(type, field) },
#define E(name) { #name, (long long)(name) },

/* clang-format off */
const struct fact FACTS[] = {
	S(dim3) S(struct cudaChannelFormatDesc) S(struct cudaPitchedPtr) S(struct cudaExtent)
	S(struct cudaMemcpy3DParms) O(struct cudaMemcpy3DParms, dstArray) O(struct cudaMemcpy3DParms, extent)
	O(struct cudaMemcpy3DParms, kind) S(struct cudaMemcpy3DPeerParms) O(struct cudaMemcpy3DPeerParms, extent)
	S(struct cudaPointerAttributes) O(struct cudaPointerAttributes, hostPointer)
	S(struct cudaFuncAttributes) O(struct cudaFuncAttributes, numRegs)
	O(struct cudaFuncAttributes, maxDynamicSharedSizeBytes) O(struct cudaFuncAttributes, nonPortableClusterSizeAllowed)
	S(cudaLaunchConfig_t) O(cudaLaunchConfig_t, dynamicSmemBytes) O(cudaLaunchConfig_t, numAttrs)
	S(struct cudaKernelNodeParams) O(struct cudaKernelNodeParams, kernelParams)
	S(struct cudaGraphNodeParams) O(struct cudaGraphNodeParams, kernel) O(struct cudaGraphNodeParams, memcpy.copyParams)
	O(struct cudaGraphNodeParams, reserved2) S(struct cudaResourceDesc) O(struct cudaResourceDesc, res.linear.sizeInBytes)
	O(struct cudaResourceDesc, res.pitch2D.pitchInBytes) O(struct cudaResourceDesc, flags)
	S(struct cudaTextureDesc) O(struct cudaTextureDesc, borderColor) O(struct cudaTextureDesc, seamlessCubemap)
	S(struct cudaDeviceProp)
#define P(field) O(struct cudaDeviceProp, field)
	P(uuid) P(luid) P(totalGlobalMem) P(sharedMemPerBlock) P(regsPerBlock) P(warpSize) P(memPitch)
	P(maxThreadsPerBlock) P(maxThreadsDim) P(maxGridSize) P(totalConstMem) P(major) P(minor)
	P(textureAlignment) P(texturePitchAlignment) P(multiProcessorCount) P(integrated) P(canMapHostMemory)
	P(maxTexture1D) P(maxTexture1DMipmap) P(maxTexture2D) P(maxTexture2DMipmap) P(maxTexture2DLinear)
	P(maxTexture2DGather) P(maxTexture3D) P(maxTexture3DAlt) P(maxTextureCubemap) P(maxTexture1DLayered)
	P(maxTexture2DLayered) P(maxTextureCubemapLayered) P(maxSurface1D) P(maxSurface2D) P(maxSurface3D)
	P(maxSurface1DLayered) P(maxSurface2DLayered) P(maxSurfaceCubemap) P(maxSurfaceCubemapLayered)
	P(surfaceAlignment) P(concurrentKernels) P(ECCEnabled) P(pciBusID) P(pciDeviceID) P(pciDomainID)
	P(tccDriver) P(asyncEngineCount) P(unifiedAddressing) P(memoryBusWidth) P(l2CacheSize)
	P(persistingL2CacheMaxSize) P(maxThreadsPerMultiProcessor) P(streamPrioritiesSupported)
	P(globalL1CacheSupported) P(localL1CacheSupported) P(sharedMemPerMultiprocessor) P(regsPerMultiprocessor)
	P(managedMemory) P(isMultiGpuBoard) P(multiGpuBoardGroupID) P(hostNativeAtomicSupported)
	P(pageableMemoryAccess) P(concurrentManagedAccess) P(computePreemptionSupported)
	P(canUseHostPointerForRegisteredMem) P(cooperativeLaunch) P(sharedMemPerBlockOptin)
	P(pageableMemoryAccessUsesHostPageTables) P(directManagedMemAccessFromHost) P(maxBlocksPerMultiProcessor)
	P(accessPolicyMaxWindowSize) P(reservedSharedMemPerBlock) P(hostRegisterSupported)
	P(sparseCudaArraySupported) P(hostRegisterReadOnlySupported) P(timelineSemaphoreInteropSupported)
	P(memoryPoolsSupported) P(gpuDirectRDMASupported) P(gpuDirectRDMAFlushWritesOptions)
	P(gpuDirectRDMAWritesOrdering) P(memoryPoolSupportedHandleTypes) P(deferredMappingCudaArraySupported)
	P(ipcEventSupported) P(clusterLaunch) P(unifiedFunctionPointers) P(deviceNumaConfig) P(deviceNumaId)
	P(mpsEnabled) P(hostNumaId) P(gpuPciDeviceID) P(gpuPciSubsystemID) P(hostNumaMultinodeIpcSupported)
	E(cudaErrorInvalidValue) E(cudaErrorMemoryAllocation) E(cudaErrorInitializationError)
	E(cudaErrorInvalidConfiguration) E(cudaErrorInvalidPitchValue) E(cudaErrorInvalidSymbol)
	E(cudaErrorInvalidChannelDescriptor) E(cudaErrorInvalidMemcpyDirection) E(cudaErrorInsufficientDriver)
	E(cudaErrorMissingConfiguration) E(cudaErrorInvalidDeviceFunction) E(cudaErrorNoDevice)
	E(cudaErrorInvalidDevice) E(cudaErrorInvalidResourceHandle) E(cudaErrorSymbolNotFound) E(cudaErrorNotReady)
	E(cudaErrorNotSupported) E(cudaErrorUnknown) E(cudaMemcpyDefault) E(cudaChannelFormatKindNone)
	{ NULL, 0 },
};
