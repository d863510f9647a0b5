/* The table of driver calls against the library that is made from it: every symbol is exported, and
 * cuGetProcAddress finds each under its name from its version on. */
#define EGPU_CUDA_NO_ALIASES
#include <dlfcn.h>

#include "cuda/calls.h"
#include "tap.h"

/* Each row agrees with the prototype of the header, or this does not compile. */
#define AGREE(name, suffix, since, ptds, flags, params, args) CUresult name##suffix params;
CUDA_CALLS(AGREE)

struct row {
	const char *name, *symbol, *twin;
	int since;
	const char *flags;
};
#define TWIN_(symbol) NULL
#define TWIN__ptsz(symbol) #symbol "_ptsz"
#define TWIN__ptds(symbol) #symbol "_ptds"
#define ROW(name, suffix, since, ptds, flags, params, args)                                        \
	{ #name, #name #suffix, TWIN_##ptds(name##suffix), since, #flags },
static const struct row rows[] = { CUDA_CALLS(ROW) };
enum { N_ROWS = sizeof(rows) / sizeof(*rows) };

static void *proc(const char *name, int version, cuuint64_t flags)
{
	void *fn = NULL;
	CUdriverProcAddressQueryResult s;
	cuGetProcAddress_v2(name, &fn, version, flags, &s);
	return fn;
}

/* Whether a later row of the name has the same version or an earlier one. */
static bool in_order(int i)
{
	for (int k = 0; k < N_ROWS; k++)
		if (k != i && !strcmp(rows[k].name, rows[i].name) &&
			(k < i) != (rows[k].since < rows[i].since))
			return false;
	return true;
}

int main(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int missing = 0, twins = 0, wrong = 0, early = 0, disorder = 0;
	ok(lib, "the library is loaded under its name");
	for (int i = 0; i < N_ROWS; i++) {
		const struct row *r = &rows[i];
		void *sym = dlsym(lib, r->symbol), *twin = r->twin ? dlsym(lib, r->twin) : NULL;
		if (!sym && ++missing)
			printf("# no %s\n", r->symbol);
		if (r->twin && !twin && ++twins)
			printf("# no %s\n", r->twin);
		if (proc(r->name, r->since, 0) != sym && ++wrong)
			printf("# %s for %d is not %s\n", r->name, r->since, r->symbol);
		if (proc(r->name, r->since < 7000 ? 7000 : r->since, 2) == sym && twin && ++wrong)
			printf("# %s for the thread's stream is not %s\n", r->name, r->twin);
		if (proc(r->name, r->since - 1, 0) == sym && ++early)
			printf("# %s is there before %d\n", r->symbol, r->since);
		if (!in_order(i) && ++disorder)
			printf("# the rows of %s are not in order of version\n", r->name);
	}
	ok(N_ROWS > 250, "%d rows", N_ROWS);
	is_int(missing, 0, "every symbol is exported");
	is_int(twins, 0, "and every twin");
	is_int(wrong, 0, "cuGetProcAddress gives each in its version");
	is_int(early, 0, "and not before");
	is_int(disorder, 0, "rows are in order");
	return tap_done();
}
