/* hooks.h - how each hooked symbol is handled. A row of cuda/calls.h that is hooked and has no
 * class here does not compile.
 *
 *   OWN     hook_NAME, by hand, while a session is active
 *   AFTER   forwarded; a success is a moment to load pending variants (copies that wait)
 *   READ    the same for a copy to the host, which shows that its stream is done
 *   POLL    the same for what a program may call all the time (queries)
 *   STREAM  forwarded; synchronises `stream`
 *   GATED   forwarded under the launch gate: puts work on a device that we do not look at
 *   WORK    as GATED, and `stream` is remembered as having work
 */
#ifndef EGPU_AGENT_HOOKS_H
#define EGPU_AGENT_HOOKS_H

#define CLASS_cuInit INIT
#define CLASS_cuGetProcAddress PROC
#define CLASS_cuGetProcAddress_v2 PROC
#define CLASS_cuDevicePrimaryCtxRelease OWN
#define CLASS_cuDevicePrimaryCtxRelease_v2 OWN
#define CLASS_cuDevicePrimaryCtxReset OWN
#define CLASS_cuDevicePrimaryCtxReset_v2 OWN
#define CLASS_cuCtxDestroy OWN
#define CLASS_cuCtxDestroy_v2 OWN
#define CLASS_cuCtxDetach OWN
#define CLASS_cuCtxSynchronize OWN
#define CLASS_cuCtxSynchronize_v2 OWN
#define CLASS_cuModuleLoad OWN
#define CLASS_cuModuleLoadData OWN
#define CLASS_cuModuleLoadDataEx OWN
#define CLASS_cuModuleLoadFatBinary OWN
#define CLASS_cuModuleUnload OWN
#define CLASS_cuModuleGetFunction OWN
#define CLASS_cuModuleEnumerateFunctions OWN
#define CLASS_cuLinkCreate_v2 OWN
#define CLASS_cuLinkAddData_v2 OWN
#define CLASS_cuLinkAddFile_v2 OWN
#define CLASS_cuLinkComplete OWN
#define CLASS_cuLinkDestroy OWN
#define CLASS_cuFuncSetAttribute OWN
#define CLASS_cuFuncSetCacheConfig OWN
#define CLASS_cuFuncSetSharedMemConfig OWN
#define CLASS_cuLibraryLoadData OWN
#define CLASS_cuLibraryLoadFromFile OWN
#define CLASS_cuLibraryUnload OWN
#define CLASS_cuLibraryGetKernel OWN
#define CLASS_cuLibraryEnumerateKernels OWN
#define CLASS_cuLibraryGetModule OWN
#define CLASS_cuKernelGetFunction OWN
#define CLASS_cuKernelSetAttribute OWN
#define CLASS_cuKernelSetCacheConfig OWN
#define CLASS_cuMemcpy AFTER
#define CLASS_cuMemcpyPeer AFTER
#define CLASS_cuMemcpyHtoD_v2 AFTER
#define CLASS_cuMemcpyDtoH_v2 READ
#define CLASS_cuMemcpyDtoD_v2 AFTER
#define CLASS_cuMemcpy2D_v2 AFTER
#define CLASS_cuMemcpy2DUnaligned_v2 AFTER
#define CLASS_cuMemcpy3D_v2 AFTER
#define CLASS_cuMemcpy3DPeer AFTER
#define CLASS_cuStreamDestroy OWN
#define CLASS_cuStreamDestroy_v2 OWN
#define CLASS_cuStreamAddCallback WORK
#define CLASS_cuStreamQuery POLL
#define CLASS_cuStreamSynchronize STREAM
#define CLASS_cuStreamWaitValue32 WORK
#define CLASS_cuStreamWaitValue32_v2 WORK
#define CLASS_cuStreamWaitValue64 WORK
#define CLASS_cuStreamWaitValue64_v2 WORK
#define CLASS_cuStreamBatchMemOp WORK
#define CLASS_cuStreamBatchMemOp_v2 WORK
#define CLASS_cuStreamBeginCapture CAPTURE
#define CLASS_cuStreamBeginCapture_v2 CAPTURE
#define CLASS_cuStreamBeginCaptureToGraph CAPTURE
#define CLASS_cuStreamEndCapture ENDCAPTURE
#define CLASS_cuEventQuery POLL
#define CLASS_cuEventSynchronize AFTER
#define CLASS_cuLaunchKernel OWN
#define CLASS_cuLaunchKernelEx OWN
#define CLASS_cuLaunchCooperativeKernel OWN
#define CLASS_cuLaunchCooperativeKernelMultiDevice GATED
#define CLASS_cuLaunchHostFunc WORK
#define CLASS_cuFuncSetBlockShape OWN
#define CLASS_cuFuncSetSharedSize OWN
#define CLASS_cuParamSetSize OWN
#define CLASS_cuParamSeti OWN
#define CLASS_cuParamSetf OWN
#define CLASS_cuParamSetv OWN
#define CLASS_cuLaunch OWN
#define CLASS_cuLaunchGrid OWN
#define CLASS_cuLaunchGridAsync OWN
#define CLASS_cuGraphInstantiate OWN
#define CLASS_cuGraphInstantiate_v2 OWN
#define CLASS_cuGraphInstantiateWithFlags OWN
#define CLASS_cuGraphInstantiateWithParams OWN
#define CLASS_cuGraphExecKernelNodeSetParams OWN
#define CLASS_cuGraphExecKernelNodeSetParams_v2 OWN
#define CLASS_cuGraphExecNodeSetParams OWN
#define CLASS_cuGraphExecUpdate OWN
#define CLASS_cuGraphExecUpdate_v2 OWN
#define CLASS_cuGraphExecDestroy OWN
#define CLASS_cuGraphExecMemcpyNodeSetParams OWN
#define CLASS_cuGraphExecMemsetNodeSetParams OWN
#define CLASS_cuGraphExecHostNodeSetParams OWN
#define CLASS_cuGraphExecChildGraphNodeSetParams OWN
#define CLASS_cuGraphExecEventRecordNodeSetEvent OWN
#define CLASS_cuGraphExecEventWaitNodeSetEvent OWN
#define CLASS_cuGraphNodeSetEnabled OWN
#define CLASS_cuGraphLaunch OWN

#endif
