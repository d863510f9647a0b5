/* The numbers of one driver-API header: compiled once against ours and once against NVIDIA's. */
#include CUDA_HEADER

#include <stddef.h>

#include "cuda_abi.h"

#define E(name) { #name, (long long)(name) },
#define S(type) { "sizeof " #type, sizeof(type) },
#define O(type, field) { #type "." #field, offsetof(type, field) },

const struct fact FACTS[] = {
#include "cuda_abi_facts.inc"
	S(CUresult) S(CUdeviceptr) S(CUdevice) S(CUcontext) S(CUuuid) S(cuuint32_t) S(cuuint64_t) S(
		CUdevprop) O(CUdevprop, maxThreadsPerBlock) O(CUdevprop, maxThreadsDim) O(CUdevprop,
		maxGridSize) O(CUdevprop, sharedMemPerBlock) O(CUdevprop,
		totalConstantMemory) O(CUdevprop, SIMDWidth) O(CUdevprop, memPitch) O(CUdevprop,
		regsPerBlock) O(CUdevprop, clockRate) O(CUdevprop,
		textureAlign) S(CUexecAffinityParam) O(CUexecAffinityParam,
		param) S(CUctxCreateParams) O(CUctxCreateParams,
		execAffinityParams) O(CUctxCreateParams, numExecAffinityParams) O(CUctxCreateParams,
		cigParams) S(CUmemLocation) O(CUmemLocation, type) O(CUmemLocation,
		id) S(CUmemAccessDesc) O(CUmemAccessDesc, location) O(CUmemAccessDesc,
		flags) S(CUmemPoolProps) O(CUmemPoolProps, allocType) O(CUmemPoolProps,
		handleTypes) O(CUmemPoolProps, location) O(CUmemPoolProps,
		win32SecurityAttributes) O(CUmemPoolProps, maxSize) O(CUmemPoolProps,
		usage) S(CUDA_MEMCPY2D) O(CUDA_MEMCPY2D, srcXInBytes) O(CUDA_MEMCPY2D,
		srcY) O(CUDA_MEMCPY2D, srcMemoryType) O(CUDA_MEMCPY2D, srcHost) O(CUDA_MEMCPY2D,
		srcDevice) O(CUDA_MEMCPY2D, srcArray) O(CUDA_MEMCPY2D, srcPitch) O(CUDA_MEMCPY2D,
		dstXInBytes) O(CUDA_MEMCPY2D, dstY) O(CUDA_MEMCPY2D, dstMemoryType) O(CUDA_MEMCPY2D,
		dstHost) O(CUDA_MEMCPY2D, dstDevice) O(CUDA_MEMCPY2D, dstArray) O(CUDA_MEMCPY2D,
		dstPitch) O(CUDA_MEMCPY2D, WidthInBytes) O(CUDA_MEMCPY2D,
		Height) S(CUDA_MEMCPY3D) O(CUDA_MEMCPY3D, srcXInBytes) O(CUDA_MEMCPY3D,
		srcY) O(CUDA_MEMCPY3D, srcZ) O(CUDA_MEMCPY3D, srcLOD) O(CUDA_MEMCPY3D,
		srcMemoryType) O(CUDA_MEMCPY3D, srcHost) O(CUDA_MEMCPY3D, srcDevice)
		O(CUDA_MEMCPY3D, srcArray) O(CUDA_MEMCPY3D, reserved0) O(CUDA_MEMCPY3D, srcPitch) O(
			CUDA_MEMCPY3D, srcHeight) O(CUDA_MEMCPY3D, dstXInBytes) O(CUDA_MEMCPY3D,
			dstY) O(CUDA_MEMCPY3D, dstZ) O(CUDA_MEMCPY3D, dstLOD) O(CUDA_MEMCPY3D,
			dstMemoryType) O(CUDA_MEMCPY3D, dstHost) O(CUDA_MEMCPY3D,
			dstDevice) O(CUDA_MEMCPY3D, dstArray) O(CUDA_MEMCPY3D,
			reserved1) O(CUDA_MEMCPY3D, dstPitch) O(CUDA_MEMCPY3D,
			dstHeight) O(CUDA_MEMCPY3D, WidthInBytes) O(CUDA_MEMCPY3D,
			Height) O(CUDA_MEMCPY3D, Depth) S(CUDA_MEMCPY3D_PEER) O(CUDA_MEMCPY3D_PEER,
			srcContext) O(CUDA_MEMCPY3D_PEER, srcPitch) O(CUDA_MEMCPY3D_PEER,
			dstXInBytes) O(CUDA_MEMCPY3D_PEER, dstContext) O(CUDA_MEMCPY3D_PEER,
			dstPitch) O(CUDA_MEMCPY3D_PEER, WidthInBytes) O(CUDA_MEMCPY3D_PEER,
			Depth) S(CUstreamBatchMemOpParams) O(CUstreamBatchMemOpParams,
			waitValue.address) O(CUstreamBatchMemOpParams,
			waitValue.value64) O(CUstreamBatchMemOpParams,
			waitValue.flags) O(CUstreamBatchMemOpParams,
			waitValue.alias) O(CUstreamBatchMemOpParams,
			writeValue.value) O(CUstreamBatchMemOpParams,
			writeValue.flags) O(CUstreamBatchMemOpParams,
			flushRemoteWrites.flags) O(CUstreamBatchMemOpParams,
			memoryBarrier.flags) S(CUaccessPolicyWindow) O(CUaccessPolicyWindow,
			num_bytes) O(CUaccessPolicyWindow, hitRatio) O(CUaccessPolicyWindow,
			hitProp) O(CUaccessPolicyWindow,
			missProp) S(CUlaunchMemSyncDomainMap) O(CUlaunchMemSyncDomainMap,
			default_) O(CUlaunchMemSyncDomainMap,
			remote) S(CUlaunchAttributeValue) O(CUlaunchAttributeValue,
			clusterDim.z) O(CUlaunchAttributeValue,
			programmaticEvent.flags) O(CUlaunchAttributeValue,
			programmaticEvent.triggerAtBlockStart) O(CUlaunchAttributeValue,
			launchCompletionEvent.flags) O(CUlaunchAttributeValue,
			preferredClusterDim.z) O(CUlaunchAttributeValue,
			deviceUpdatableKernelNode.devNode) S(CUlaunchAttribute) O(CUlaunchAttribute,
			id) O(CUlaunchAttribute, value) S(CUlaunchConfig) O(CUlaunchConfig,
			gridDimX) O(CUlaunchConfig, gridDimZ) O(CUlaunchConfig, blockDimX)
			O(CUlaunchConfig, blockDimZ) O(CUlaunchConfig, sharedMemBytes) O(
				CUlaunchConfig, hStream) O(CUlaunchConfig, attrs) O(CUlaunchConfig,
				numAttrs) S(CUDA_LAUNCH_PARAMS) O(CUDA_LAUNCH_PARAMS,
				function) O(CUDA_LAUNCH_PARAMS,
				sharedMemBytes) O(CUDA_LAUNCH_PARAMS, hStream) O(CUDA_LAUNCH_PARAMS,
				kernelParams) S(CUgraphEdgeData)
				S(CUDA_KERNEL_NODE_PARAMS_v1) S(CUDA_KERNEL_NODE_PARAMS) O(
					CUDA_KERNEL_NODE_PARAMS, func) O(CUDA_KERNEL_NODE_PARAMS,
					gridDimX) O(CUDA_KERNEL_NODE_PARAMS,
					sharedMemBytes) O(CUDA_KERNEL_NODE_PARAMS, kernelParams)
					O(CUDA_KERNEL_NODE_PARAMS, extra) O(CUDA_KERNEL_NODE_PARAMS,
						kern) O(CUDA_KERNEL_NODE_PARAMS, ctx)
	/* clang-format off */
	/* graphs */
	S(CUgraphNodeParams) O(CUgraphNodeParams, kernel) O(CUgraphNodeParams, memcpy.copyParams)
	O(CUgraphNodeParams, memset.ctx) O(CUgraphNodeParams, kernel.ctx) O(CUgraphNodeParams, reserved2)
	S(CUDA_MEMSET_NODE_PARAMS) S(CUDA_HOST_NODE_PARAMS) S(CUDA_MEMCPY_NODE_PARAMS)
	S(CUDA_CHILD_GRAPH_NODE_PARAMS) S(CUDA_MEM_ALLOC_NODE_PARAMS) O(CUDA_MEM_ALLOC_NODE_PARAMS, dptr)
	S(CUDA_GRAPH_INSTANTIATE_PARAMS) O(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out)
	S(CUgraphExecUpdateResultInfo) O(CUgraphExecUpdateResultInfo, errorFromNode)
	/* arrays, textures, virtual memory, other processes */
	S(CUDA_ARRAY_DESCRIPTOR) O(CUDA_ARRAY_DESCRIPTOR, NumChannels) S(CUDA_ARRAY3D_DESCRIPTOR)
	O(CUDA_ARRAY3D_DESCRIPTOR, Flags) S(CUDA_RESOURCE_DESC) O(CUDA_RESOURCE_DESC, flags)
	O(CUDA_RESOURCE_DESC, res.linear.sizeInBytes) O(CUDA_RESOURCE_DESC, res.pitch2D.pitchInBytes)
	S(CUDA_TEXTURE_DESC) O(CUDA_TEXTURE_DESC, borderColor) O(CUDA_TEXTURE_DESC, mipmapFilterMode)
	S(CUDA_RESOURCE_VIEW_DESC) O(CUDA_RESOURCE_VIEW_DESC, lastLayer) S(CUmemAllocationProp)
	O(CUmemAllocationProp, allocFlags) S(CUipcMemHandle) S(CUipcEventHandle)
	/* clang-format on */
	{ NULL, 0 },
};
