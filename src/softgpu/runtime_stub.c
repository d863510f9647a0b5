/* runtime_stub.c - names that NVIDIA's runtime exports and this one does not do: graphics, external
 * memory, tables of its own. They are here so that a program which only mentions them starts. */
#include "softgpu/runtime.h"

/* clang-format off */
#define STUBS(STUB) \
	STUB(__cudaGetProcAddress) \
	STUB(cudaArrayGetMemoryRequirements) \
	STUB(cudaArrayGetPlane) \
	STUB(cudaArrayGetSparseProperties) \
	STUB(cudaDestroyExternalMemory) \
	STUB(cudaDestroyExternalSemaphore) \
	STUB(cudaDeviceFlushGPUDirectRDMAWrites) \
	STUB(cudaDeviceGetHostAtomicCapabilities) \
	STUB(cudaDeviceGetNvSciSyncAttributes) \
	STUB(cudaDeviceGetP2PAtomicCapabilities) \
	STUB(cudaDeviceRegisterAsyncNotification) \
	STUB(cudaDeviceUnregisterAsyncNotification) \
	STUB(cudaEGLStreamConsumerAcquireFrame) \
	STUB(cudaEGLStreamConsumerConnect) \
	STUB(cudaEGLStreamConsumerConnectWithFlags) \
	STUB(cudaEGLStreamConsumerDisconnect) \
	STUB(cudaEGLStreamConsumerReleaseFrame) \
	STUB(cudaEGLStreamProducerConnect) \
	STUB(cudaEGLStreamProducerDisconnect) \
	STUB(cudaEGLStreamProducerPresentFrame) \
	STUB(cudaEGLStreamProducerReturnFrame) \
	STUB(cudaEventCreateFromEGLSync) \
	STUB(cudaExternalMemoryGetMappedBuffer) \
	STUB(cudaExternalMemoryGetMappedMipmappedArray) \
	STUB(cudaGLGetDevices) \
	STUB(cudaGLMapBufferObject) \
	STUB(cudaGLMapBufferObjectAsync) \
	STUB(cudaGLRegisterBufferObject) \
	STUB(cudaGLSetBufferObjectMapFlags) \
	STUB(cudaGLSetGLDevice) \
	STUB(cudaGLUnmapBufferObject) \
	STUB(cudaGLUnmapBufferObjectAsync) \
	STUB(cudaGLUnregisterBufferObject) \
	STUB(cudaGetExportTable) \
	STUB(cudaGraphAddExternalSemaphoresSignalNode) \
	STUB(cudaGraphAddExternalSemaphoresWaitNode) \
	STUB(cudaGraphExecExternalSemaphoresSignalNodeSetParams) \
	STUB(cudaGraphExecExternalSemaphoresWaitNodeSetParams) \
	STUB(cudaGraphExternalSemaphoresSignalNodeGetParams) \
	STUB(cudaGraphExternalSemaphoresSignalNodeSetParams) \
	STUB(cudaGraphExternalSemaphoresWaitNodeGetParams) \
	STUB(cudaGraphExternalSemaphoresWaitNodeSetParams) \
	STUB(cudaGraphicsEGLRegisterImage) \
	STUB(cudaGraphicsGLRegisterBuffer) \
	STUB(cudaGraphicsGLRegisterImage) \
	STUB(cudaGraphicsMapResources) \
	STUB(cudaGraphicsResourceGetMappedEglFrame) \
	STUB(cudaGraphicsResourceGetMappedMipmappedArray) \
	STUB(cudaGraphicsResourceGetMappedPointer) \
	STUB(cudaGraphicsResourceSetMapFlags) \
	STUB(cudaGraphicsSubResourceGetMappedArray) \
	STUB(cudaGraphicsUnmapResources) \
	STUB(cudaGraphicsUnregisterResource) \
	STUB(cudaGraphicsVDPAURegisterOutputSurface) \
	STUB(cudaGraphicsVDPAURegisterVideoSurface) \
	STUB(cudaImportExternalMemory) \
	STUB(cudaImportExternalSemaphore) \
	STUB(cudaLibraryGetUnifiedFunction) \
	STUB(cudaLogsCurrent) \
	STUB(cudaLogsDumpToFile) \
	STUB(cudaLogsDumpToMemory) \
	STUB(cudaLogsRegisterCallback) \
	STUB(cudaLogsUnregisterCallback) \
	STUB(cudaMemDiscardAndPrefetchBatchAsync) \
	STUB(cudaMemDiscardAndPrefetchBatchAsync_ptsz) \
	STUB(cudaMemDiscardBatchAsync) \
	STUB(cudaMemDiscardBatchAsync_ptsz) \
	STUB(cudaMemGetDefaultMemPool) \
	STUB(cudaMemGetMemPool) \
	STUB(cudaMemPoolExportPointer) \
	STUB(cudaMemPoolExportToShareableHandle) \
	STUB(cudaMemPoolImportFromShareableHandle) \
	STUB(cudaMemPoolImportPointer) \
	STUB(cudaMemPrefetchBatchAsync) \
	STUB(cudaMemPrefetchBatchAsync_ptsz) \
	STUB(cudaMemSetMemPool) \
	STUB(cudaMemcpy2DArrayToArray) \
	STUB(cudaMemcpy2DArrayToArray_ptds) \
	STUB(cudaMemcpy3DBatchAsync) \
	STUB(cudaMemcpy3DBatchAsync_ptsz) \
	STUB(cudaMemcpyArrayToArray) \
	STUB(cudaMemcpyArrayToArray_ptds) \
	STUB(cudaMemcpyBatchAsync) \
	STUB(cudaMemcpyBatchAsync_ptsz) \
	STUB(cudaMemcpyFromArrayAsync) \
	STUB(cudaMemcpyFromArrayAsync_ptsz) \
	STUB(cudaMemcpyToArrayAsync) \
	STUB(cudaMemcpyToArrayAsync_ptsz) \
	STUB(cudaMipmappedArrayGetMemoryRequirements) \
	STUB(cudaMipmappedArrayGetSparseProperties) \
	STUB(cudaSignalExternalSemaphoresAsync) \
	STUB(cudaSignalExternalSemaphoresAsync_ptsz) \
	STUB(cudaVDPAUGetDevice) \
	STUB(cudaVDPAUSetVDPAUDevice) \
	STUB(cudaWaitExternalSemaphoresAsync) \
	STUB(cudaWaitExternalSemaphoresAsync_ptsz)
/* clang-format on */

#define MAKE(name)                                                                                 \
	cudaError_t RTAPI name(void);                                                              \
	cudaError_t RTAPI name(void)                                                               \
	{                                                                                          \
		return rt_end(cudaErrorNotSupported);                                              \
	}
STUBS(MAKE)
