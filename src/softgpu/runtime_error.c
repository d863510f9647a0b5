/* runtime_error.c - names of errors, and the sentences that go with them. */
#include "softgpu/runtime.h"

/* clang-format off */
#define ERRORS(E) \
	E(Success, 0) \
	E(ErrorInvalidValue, 1) \
	E(ErrorMemoryAllocation, 2) \
	E(ErrorInitializationError, 3) \
	E(ErrorCudartUnloading, 4) \
	E(ErrorProfilerDisabled, 5) \
	E(ErrorProfilerNotInitialized, 6) \
	E(ErrorProfilerAlreadyStarted, 7) \
	E(ErrorProfilerAlreadyStopped, 8) \
	E(ErrorInvalidConfiguration, 9) \
	E(ErrorInvalidPitchValue, 12) \
	E(ErrorInvalidSymbol, 13) \
	E(ErrorInvalidHostPointer, 16) \
	E(ErrorInvalidDevicePointer, 17) \
	E(ErrorInvalidTexture, 18) \
	E(ErrorInvalidTextureBinding, 19) \
	E(ErrorInvalidChannelDescriptor, 20) \
	E(ErrorInvalidMemcpyDirection, 21) \
	E(ErrorAddressOfConstant, 22) \
	E(ErrorTextureFetchFailed, 23) \
	E(ErrorTextureNotBound, 24) \
	E(ErrorSynchronizationError, 25) \
	E(ErrorInvalidFilterSetting, 26) \
	E(ErrorInvalidNormSetting, 27) \
	E(ErrorMixedDeviceExecution, 28) \
	E(ErrorNotYetImplemented, 31) \
	E(ErrorMemoryValueTooLarge, 32) \
	E(ErrorStubLibrary, 34) \
	E(ErrorInsufficientDriver, 35) \
	E(ErrorCallRequiresNewerDriver, 36) \
	E(ErrorInvalidSurface, 37) \
	E(ErrorDuplicateVariableName, 43) \
	E(ErrorDuplicateTextureName, 44) \
	E(ErrorDuplicateSurfaceName, 45) \
	E(ErrorDevicesUnavailable, 46) \
	E(ErrorIncompatibleDriverContext, 49) \
	E(ErrorMissingConfiguration, 52) \
	E(ErrorPriorLaunchFailure, 53) \
	E(ErrorLaunchMaxDepthExceeded, 65) \
	E(ErrorLaunchFileScopedTex, 66) \
	E(ErrorLaunchFileScopedSurf, 67) \
	E(ErrorSyncDepthExceeded, 68) \
	E(ErrorLaunchPendingCountExceeded, 69) \
	E(ErrorInvalidDeviceFunction, 98) \
	E(ErrorNoDevice, 100) \
	E(ErrorInvalidDevice, 101) \
	E(ErrorDeviceNotLicensed, 102) \
	E(ErrorSoftwareValidityNotEstablished, 103) \
	E(ErrorStartupFailure, 127) \
	E(ErrorInvalidKernelImage, 200) \
	E(ErrorDeviceUninitialized, 201) \
	E(ErrorMapBufferObjectFailed, 205) \
	E(ErrorUnmapBufferObjectFailed, 206) \
	E(ErrorArrayIsMapped, 207) \
	E(ErrorAlreadyMapped, 208) \
	E(ErrorNoKernelImageForDevice, 209) \
	E(ErrorAlreadyAcquired, 210) \
	E(ErrorNotMapped, 211) \
	E(ErrorNotMappedAsArray, 212) \
	E(ErrorNotMappedAsPointer, 213) \
	E(ErrorECCUncorrectable, 214) \
	E(ErrorUnsupportedLimit, 215) \
	E(ErrorDeviceAlreadyInUse, 216) \
	E(ErrorPeerAccessUnsupported, 217) \
	E(ErrorInvalidPtx, 218) \
	E(ErrorInvalidGraphicsContext, 219) \
	E(ErrorNvlinkUncorrectable, 220) \
	E(ErrorJitCompilerNotFound, 221) \
	E(ErrorUnsupportedPtxVersion, 222) \
	E(ErrorJitCompilationDisabled, 223) \
	E(ErrorUnsupportedExecAffinity, 224) \
	E(ErrorUnsupportedDevSideSync, 225) \
	E(ErrorContained, 226) \
	E(ErrorInvalidSource, 300) \
	E(ErrorFileNotFound, 301) \
	E(ErrorSharedObjectSymbolNotFound, 302) \
	E(ErrorSharedObjectInitFailed, 303) \
	E(ErrorOperatingSystem, 304) \
	E(ErrorInvalidResourceHandle, 400) \
	E(ErrorIllegalState, 401) \
	E(ErrorLossyQuery, 402) \
	E(ErrorSymbolNotFound, 500) \
	E(ErrorNotReady, 600) \
	E(ErrorIllegalAddress, 700) \
	E(ErrorLaunchOutOfResources, 701) \
	E(ErrorLaunchTimeout, 702) \
	E(ErrorLaunchIncompatibleTexturing, 703) \
	E(ErrorPeerAccessAlreadyEnabled, 704) \
	E(ErrorPeerAccessNotEnabled, 705) \
	E(ErrorSetOnActiveProcess, 708) \
	E(ErrorContextIsDestroyed, 709) \
	E(ErrorAssert, 710) \
	E(ErrorTooManyPeers, 711) \
	E(ErrorHostMemoryAlreadyRegistered, 712) \
	E(ErrorHostMemoryNotRegistered, 713) \
	E(ErrorHardwareStackError, 714) \
	E(ErrorIllegalInstruction, 715) \
	E(ErrorMisalignedAddress, 716) \
	E(ErrorInvalidAddressSpace, 717) \
	E(ErrorInvalidPc, 718) \
	E(ErrorLaunchFailure, 719) \
	E(ErrorCooperativeLaunchTooLarge, 720) \
	E(ErrorTensorMemoryLeak, 721) \
	E(ErrorNotPermitted, 800) \
	E(ErrorNotSupported, 801) \
	E(ErrorSystemNotReady, 802) \
	E(ErrorSystemDriverMismatch, 803) \
	E(ErrorCompatNotSupportedOnDevice, 804) \
	E(ErrorMpsConnectionFailed, 805) \
	E(ErrorMpsRpcFailure, 806) \
	E(ErrorMpsServerNotReady, 807) \
	E(ErrorMpsMaxClientsReached, 808) \
	E(ErrorMpsMaxConnectionsReached, 809) \
	E(ErrorMpsClientTerminated, 810) \
	E(ErrorCdpNotSupported, 811) \
	E(ErrorCdpVersionMismatch, 812) \
	E(ErrorStreamCaptureUnsupported, 900) \
	E(ErrorStreamCaptureInvalidated, 901) \
	E(ErrorStreamCaptureMerge, 902) \
	E(ErrorStreamCaptureUnmatched, 903) \
	E(ErrorStreamCaptureUnjoined, 904) \
	E(ErrorStreamCaptureIsolation, 905) \
	E(ErrorStreamCaptureImplicit, 906) \
	E(ErrorCapturedEvent, 907) \
	E(ErrorStreamCaptureWrongThread, 908) \
	E(ErrorTimeout, 909) \
	E(ErrorGraphExecUpdateFailure, 910) \
	E(ErrorExternalDevice, 911) \
	E(ErrorInvalidClusterSize, 912) \
	E(ErrorFunctionNotLoaded, 913) \
	E(ErrorInvalidResourceType, 914) \
	E(ErrorInvalidResourceConfiguration, 915) \
	E(ErrorUnknown, 999) \
	E(ErrorApiFailureBase, 10000)
/* clang-format on */

RTAPI const char *cudaGetErrorName(cudaError_t error);
RTAPI const char *cudaGetErrorName(cudaError_t error)
{
	switch (error) {
#define NAME(name, code)                                                                           \
	case code:                                                                                 \
		return "cuda" #name;
		ERRORS(NAME)
	}
	return "unrecognized error code";
}

/* Those that the driver does not know. */
static const char *own_text(cudaError_t error)
{
	switch (error) {
	case 9:
		return "invalid configuration argument";
	case 12:
		return "invalid pitch argument";
	case 13:
		return "invalid device symbol";
	case 16:
		return "invalid host pointer";
	case 17:
		return "invalid device pointer";
	case 18:
		return "invalid texture reference";
	case 19:
		return "texture is not bound to a pointer";
	case 20:
		return "invalid channel descriptor";
	case 21:
		return "invalid copy direction for memcpy";
	case 35:
		return "CUDA driver version is insufficient for CUDA runtime version";
	case 37:
		return "invalid surface reference";
	case 43:
		return "duplicate global variable looked up by string name";
	case 49:
		return "incompatible driver context";
	case 52:
		return "__global__ function call is not configured";
	case 53:
		return "unspecified launch failure in prior launch";
	case 98:
		return "invalid device function";
	}
	return "unrecognized error code";
}

RTAPI const char *cudaGetErrorString(cudaError_t error);
RTAPI const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;
	rt_enter_driver(); /* whatever comes of it, the driver's texts may be there */
	if (rt_calls[0].cuGetErrorString && !rt_calls[0].cuGetErrorString((CUresult)error, &text) &&
		text)
		return text;
	return own_text(error);
}
