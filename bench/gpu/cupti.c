/* cupti.c - what a user of CUPTI's SASS metrics pays for the executed loads and stores of global memory: the vendor's exact count, to compare
 * with. The library is opened by name, so the program runs without it; its header declares the calls.
 */
#include <cuda.h>
#include <cupti_profiler_target.h>
#include <cupti_result.h>
#include <cupti_sass_metrics.h>
#include <cupti_target.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cupti_open(void);
void cupti_start(void);
void cupti_stop(const char *kernel, uint64_t counts[2]);

static const char *const wanted[] = { "smsp__sass_inst_executed_op_global_ld", "smsp__sass_inst_executed_op_global_st" };
enum { N_WANTED = 2 };

static void *lib;
static CUcontext context;
static uint64_t ids[N_WANTED], totals[N_WANTED];

__attribute__((noreturn)) static void give_up(const char *what, int error)
{
	fprintf(stderr, "bench_gpu_work: CUPTI: %s (%d)\n", what, error);
	exit(1);
}

static void *symbol(const char *name)
{
	void *p = dlsym(lib, name);
	if (!p)
		give_up(name, 0);
	return p;
}

/* CALL(cuptiX, CUpti_X_Params, field = value, ...) fills the parameters and ends the program on an error. */
#define CALL(fn, type, var, ...)                                                                   \
	type var = { .structSize = type##_STRUCT_SIZE, __VA_ARGS__ };                              \
	do {                                                                                       \
		CUptiResult (*call_)(type *) = (CUptiResult(*)(type *))symbol(#fn);                \
		CUptiResult result_ = call_(&var);                                                 \
		if (result_ != CUPTI_SUCCESS)                                                      \
			give_up(#fn, result_);                                                     \
	} while (0)

static void open_library(void)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
		"/usr/local/cuda/lib64/libcupti.so" };
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW);
	if (!lib)
		give_up("libcupti.so is not here", 0);
}

/* Before there is a context: CUPTI sees only contexts that are created after this. */
void cupti_open(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult (*init_driver)(unsigned) = driver ? (CUresult(*)(unsigned))dlsym(driver, "cuInit") : NULL;
	if (!init_driver || init_driver(0))
		give_up("no driver", 0);
	open_library();
	CALL(cuptiProfilerInitialize, CUpti_Profiler_Initialize_Params, init, .pPriv = NULL);
}

/* With a context, and nothing of the driver's own to run until cupti_stop: after a cuMemsetD8 CUPTI 13.0 patches nothing. */
void cupti_start(void)
{
	CUpti_SassMetrics_Config config[N_WANTED];
	CUresult (*current)(CUcontext *) = (CUresult(*)(CUcontext *))dlsym(RTLD_DEFAULT, "cuCtxGetCurrent");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!current && driver)
		current = (CUresult(*)(CUcontext *))dlsym(driver, "cuCtxGetCurrent");
	if (!current || current(&context))
		give_up("no context", 0);
	CALL(cuptiProfilerDeviceSupported, CUpti_Profiler_DeviceSupported_Params, supported, .cuDevice = 0, .api = CUPTI_PROFILER_SASS_METRICS);
	if (supported.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
		give_up("this device or its configuration has no SASS metrics", (int)supported.isSupported);
	CALL(cuptiDeviceGetChipName, CUpti_Device_GetChipName_Params, chip, .deviceIndex = 0);
	for (int i = 0; i < N_WANTED; i++) {
		CALL(cuptiSassMetricsGetProperties, CUpti_SassMetrics_GetProperties_Params, p, .pChipName = chip.pChipName, .pMetricName = wanted[i]);
		ids[i] = p.metric.metricId;
		config[i] = (CUpti_SassMetrics_Config){ .metricId = ids[i], .outputGranularity = CUPTI_SASS_METRICS_OUTPUT_GRANULARITY_GPU };
	}
	CALL(cuptiSassMetricsSetConfig, CUpti_SassMetricsSetConfig_Params, set, .numOfMetricConfig = N_WANTED, .pConfigs = config, .deviceIndex = 0);
	CALL(cuptiSassMetricsEnable, CUpti_SassMetricsEnable_Params, on, .ctx = context, .enableLazyPatching = 1);
}

/* Executed loads and stores, a warp each, of the kernel since the start. The data are asked for once: after they were, CUPTI counts no more. */
static void collect(const char *kernel)
{
	CALL(cuptiSassMetricsGetDataProperties, CUpti_SassMetricsGetDataProperties_Params, p, .ctx = context);
	size_t n = p.numOfPatchedInstructionRecords, each = p.numOfInstances;
	if (!n || !each)
		give_up("no instruction was patched", 0);
	CUpti_SassMetrics_Data *data = calloc(n, sizeof(*data));
	CUpti_SassMetrics_InstanceValue *values = calloc(n * each, sizeof(*values));
	if (!data || !values)
		give_up("out of memory", 0);
	for (size_t i = 0; i < n; i++) {
		data[i].structSize = CUpti_SassMetricsFlushData_Params_STRUCT_SIZE; /* as its header says */
		data[i].pInstanceValues = values + i * each;
	}
	CALL(cuptiSassMetricsFlushData, CUpti_SassMetricsFlushData_Params, flush, .ctx = context, .numOfPatchedInstructionRecords = n,
		.numOfInstances = each, .pMetricsData = data);
	for (size_t i = 0; i < n; i++) {
		if (!data[i].functionName || strcmp(data[i].functionName, kernel))
			continue;
		for (size_t k = 0; k < each; k++)
			for (int m = 0; m < N_WANTED; m++)
				totals[m] += data[i].pInstanceValues[k].metricId == ids[m] ? data[i].pInstanceValues[k].value : 0;
	}
	if (!totals[0])
		fprintf(stderr, "# CUPTI: nothing of %s, but %zu instructions of %s\n", kernel, n, data[0].functionName ? data[0].functionName : "?");
	free(values);
	free(data);
}

void cupti_stop(const char *kernel, uint64_t counts[2])
{
	collect(kernel);
	CALL(cuptiSassMetricsDisable, CUpti_SassMetricsDisable_Params, off, .ctx = context);
	CALL(cuptiSassMetricsUnsetConfig, CUpti_SassMetricsUnsetConfig_Params, unset, .deviceIndex = 0);
	memcpy(counts, totals, sizeof(totals));
}
