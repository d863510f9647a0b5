/* driver_device.c - the one device: its name, numbers and attributes. */
#include "softgpu/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/internal.h" /* sg_limits_of */

/* Attributes that are the same for every device. Those of textures and surfaces are the sizes that
 * hardware of compute capability 7.5 to 9.0 reports, since programs size buffers by them; those of
 * features that are not here are left out and read as 0. */
static const int fixed[CU_DEVICE_ATTRIBUTE_MAX] = {
#define A(name) [CU_DEVICE_ATTRIBUTE_##name]
	A(MAX_THREADS_PER_BLOCK) = 1024,
	A(MAX_BLOCK_DIM_X) = 1024,
	A(MAX_BLOCK_DIM_Y) = 1024,
	A(MAX_BLOCK_DIM_Z) = 64,
	A(MAX_GRID_DIM_X) = 0x7fffffff,
	A(MAX_GRID_DIM_Y) = 65535,
	A(MAX_GRID_DIM_Z) = 65535,
	A(MAX_SHARED_MEMORY_PER_BLOCK) = 48 << 10,
	A(TOTAL_CONSTANT_MEMORY) = 64 << 10,
	A(WARP_SIZE) = 32,
	A(MAX_PITCH) = 0x7fffffff,
	A(MAX_REGISTERS_PER_BLOCK) = 65536,
	A(CLOCK_RATE) = 1000000, /* kHz: one cycle a nanosecond */
	A(TEXTURE_ALIGNMENT) = 512,
	A(GPU_OVERLAP) = 1,
	A(CAN_MAP_HOST_MEMORY) = 1,
	A(COMPUTE_MODE) = CU_COMPUTEMODE_DEFAULT,
	A(MAXIMUM_TEXTURE1D_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE2D_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE2D_HEIGHT) = 65536,
	A(MAXIMUM_TEXTURE3D_WIDTH) = 16384,
	A(MAXIMUM_TEXTURE3D_HEIGHT) = 16384,
	A(MAXIMUM_TEXTURE3D_DEPTH) = 16384,
	A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT) = 32768,
	A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS) = 2048,
	A(SURFACE_ALIGNMENT) = 512,
	A(CONCURRENT_KERNELS) = 1,
	A(MEMORY_CLOCK_RATE) = 1000000,
	A(GLOBAL_MEMORY_BUS_WIDTH) = 256,
	A(L2_CACHE_SIZE) = 4 << 20,
	A(ASYNC_ENGINE_COUNT) = 2,
	A(UNIFIED_ADDRESSING) = 1,
	A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_TEXTURE2D_GATHER_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT) = 32768,
	A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE) = 8192,
	A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE) = 8192,
	A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE) = 32768,
	A(TEXTURE_PITCH_ALIGNMENT) = 32,
	A(MAXIMUM_TEXTURECUBEMAP_WIDTH) = 32768,
	A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS) = 2046,
	A(MAXIMUM_SURFACE1D_WIDTH) = 32768,
	A(MAXIMUM_SURFACE2D_WIDTH) = 131072,
	A(MAXIMUM_SURFACE2D_HEIGHT) = 65536,
	A(MAXIMUM_SURFACE3D_WIDTH) = 16384,
	A(MAXIMUM_SURFACE3D_HEIGHT) = 16384,
	A(MAXIMUM_SURFACE3D_DEPTH) = 16384,
	A(MAXIMUM_SURFACE1D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACE1D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_SURFACE2D_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT) = 32768,
	A(MAXIMUM_SURFACE2D_LAYERED_LAYERS) = 2048,
	A(MAXIMUM_SURFACECUBEMAP_WIDTH) = 32768,
	A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH) = 32768,
	A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS) = 2046,
	A(MAXIMUM_TEXTURE1D_LINEAR_WIDTH) = 1 << 28,
	A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH) = 131072,
	A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) = 65000,
	A(MAXIMUM_TEXTURE2D_LINEAR_PITCH) = 2097120,
	A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH) = 32768,
	A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT) = 32768,
	A(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH) = 32768,
	A(STREAM_PRIORITIES_SUPPORTED) = 1,
	A(GLOBAL_L1_CACHE_SUPPORTED) = 1,
	A(LOCAL_L1_CACHE_SUPPORTED) = 1,
	A(MAX_REGISTERS_PER_MULTIPROCESSOR) = 65536,
	A(MANAGED_MEMORY) = 1,
	A(HOST_NATIVE_ATOMIC_SUPPORTED) = 1,
	A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) = 1,
	A(CONCURRENT_MANAGED_ACCESS) = 1,
	A(COMPUTE_PREEMPTION_SUPPORTED) = 1,
	A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) = 1,
	A(CAN_USE_STREAM_MEM_OPS_V1) = 1,
	A(CAN_USE_64_BIT_STREAM_MEM_OPS_V1) = 1,
	A(CAN_USE_STREAM_WAIT_VALUE_NOR_V1) = 1,
	A(COOPERATIVE_LAUNCH) = 1,
	A(HOST_REGISTER_SUPPORTED) = 1,
	A(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST) = 1,
	A(READ_ONLY_HOST_REGISTER_SUPPORTED) = 1,
	A(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) = 1,
	A(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) = 1,
	A(RESERVED_SHARED_MEMORY_PER_BLOCK) = 1024,
	A(MEMORY_POOLS_SUPPORTED) = 1,
	A(CAN_USE_64_BIT_STREAM_MEM_OPS) = 1,
	A(CAN_USE_STREAM_WAIT_VALUE_NOR) = 1,
	A(MEM_SYNC_DOMAIN_COUNT) = 1,
	A(IPC_EVENT_SUPPORTED) = 1,
	A(NUMA_ID) = -1,
#undef A
};

uint32_t drv_shared_limit(void)
{
	return sg_limits_of(drv.config.sm)->block_shared;
}

uint32_t drv_shared_default(void)
{
	uint32_t limit = drv_shared_limit();
	return limit < 48 << 10 ? limit : 48 << 10;
}

int drv_attribute(CUdevice_attribute attr, int *value)
{
	const struct sg_limits *l = sg_limits_of(drv.config.sm);
	if (attr < 1 || attr >= CU_DEVICE_ATTRIBUTE_MAX)
		return -EINVAL;
	switch (attr) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)drv.config.n_sms;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = (int)drv.config.sm / 10;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = (int)drv.config.sm % 10;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*value = (int)l->threads;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
		*value = (int)l->blocks;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		*value = (int)l->shared;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = (int)l->block_shared;
		break;
	case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
		*value = drv.config.sm >= 90;
		break;
	default:
		*value = fixed[attr];
	}
	return 0;
}

/* Enters for a question about dev. */
static CUresult enter_device(const void *out, CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_device_ok(dev) ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *dev, int ordinal)
{
	CUresult r = enter_device(dev, ordinal);
	if (r)
		return r;
	*dev = ordinal;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*count = drv.n_devices;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult r = enter_device(name, dev);
	if (r)
		return r;
	if (len <= 0)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(name, (size_t)len, "egpu softgpu sm_%u", drv.config.sm);
	return drv_leave(CUDA_SUCCESS);
}

/* One that says what it is, with the compute capability in it. */
CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	static const unsigned char base[16] = { 'e', 'g', 'p', 'u', 's', 'o', 'f', 't', 0x80, 0, 0,
		0, 0, 0, 0, 0 };
	CUresult r = enter_device(uuid, dev);
	if (r)
		return r;
	memcpy(uuid->bytes, base, sizeof(base));
	uuid->bytes[14] = (char)dev;
	uuid->bytes[15] = (char)drv.config.sm;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult r = enter_device(bytes, dev);
	if (r)
		return r;
	*bytes = drv.device_bytes;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	CUresult r = enter_device(value, dev);
	if (r)
		return r;
	if (drv_attribute(attr, value))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (attr == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		*value = dev;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	CUresult r = enter_device(prop, dev);
	if (r)
		return r;
	*prop = (CUdevprop){ .maxThreadsPerBlock = 1024,
		.maxThreadsDim = { 1024, 1024, 64 },
		.maxGridSize = { 0x7fffffff, 65535, 65535 },
		.sharedMemPerBlock = 48 << 10,
		.totalConstantMemory = 64 << 10,
		.SIMDWidth = 32,
		.memPitch = 0x7fffffff,
		.regsPerBlock = 65536,
		.clockRate = 1000000,
		.textureAlign = 512 };
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	CUresult r = enter_device(major, dev);
	if (r)
		return r;
	if (!minor)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*major = (int)drv.config.sm / 10;
	*minor = (int)drv.config.sm % 10;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *bus_id, int len, CUdevice dev)
{
	CUresult r = enter_device(bus_id, dev);
	if (r)
		return r;
	if (len < 13)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(bus_id, (size_t)len, "0000:%02x:00.0", (unsigned int)dev);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *dev, const char *bus_id)
{
	unsigned int domain = 0, bus, device, function = 0;
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!dev || !bus_id)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	/* domain:bus:device.function, domain:bus:device or bus:device.function, in hexadecimal */
	if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
		domain = 0;
		if (sscanf(bus_id, "%x:%x.%x", &bus, &device, &function) != 3)
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
	}
	if (domain || bus >= (unsigned int)drv.n_devices || device || function)
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	*dev = (CUdevice)bus;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	CUresult r = enter_device(can, dev);
	if (r)
		return r;
	if (!drv_device_ok(peer))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	*can = dev != peer; /* a device is no peer of itself */
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(
	int *value, CUdevice_P2PAttribute attr, CUdevice src, CUdevice dst)
{
	CUresult r = enter_device(value, src);
	if (r)
		return r;
	if (!drv_device_ok(dst) || src == dst)
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if (attr < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
		attr > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*value = attr == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
		 attr == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED ||
		 attr == CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice dev)
{
	CUresult r = enter_device(value, dev);
	if (r)
		return r;
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*value = 0;
	return drv_leave(CUDA_SUCCESS);
}
