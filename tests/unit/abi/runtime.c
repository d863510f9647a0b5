/* Our runtime library against NVIDIA's header: the sizes and offsets of every structure, and that
 * each name which the newest runtime exports is exported. */
#include <dlfcn.h>

#include "tap.h"

#include "cuda_abi.h"

static int missing(void *lib, const char *header)
{
	char line[4096], name[256];
	int n = 0;
	FILE *f = fopen(header, "r");
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "CUDARTAPI cuda");
		if (!at || !strstr(line, "extern __host__") ||
			sscanf(at, "CUDARTAPI %255[A-Za-z0-9_](", name) != 1)
			continue;
		if (!dlsym(lib, name)) {
			printf("# no %s\n", name);
			n++;
		}
	}
	if (f)
		fclose(f);
	return f ? n : -1;
}

int main(void)
{
	int different = 0, n = 0;
	for (; facts_ours[n].name; n++)
		if (facts_ours[n].value != facts_theirs[n].value && ++different)
			printf("# %s is %lld, NVIDIA's is %lld\n", facts_ours[n].name,
				facts_ours[n].value, facts_theirs[n].value);
	ok(n > 120, "%d facts", n);
	is_int(different, 0, "all the same");
	void *lib = dlopen(RUNTIME, RTLD_NOW);
	ok(lib, "the library opens");
	is_int(lib ? missing(lib, API_HEADER) : -1, 0, "every function of the header is exported");
	return tap_done();
}
