/* rules.c - see rules.h. */
#include "cli/rules.h"

#include <errno.h>
#include <stdlib.h>

static int number(const char *option, const char *text, uint64_t max, uint64_t *out)
{
	char *end = NULL;
	errno = 0;
	unsigned long long n = text ? strtoull(text, &end, 0) : 0;
	*out = n;
	if (text && (errno || end == text || *end || *text == '-' || !n || n > max))
		return say_fail("--%s: '%s' is no number from 1 to %llu", option, text,
			(unsigned long long)max);
	return 0;
}

int rules_read(const struct rules_opts *o, struct verifier_options *out)
{
	uint64_t insns, local;
	int status = number("max-insns", o->max_insns, 1000000000000, &insns);
	if (!status)
		status = number("max-local", o->max_local, 512 << 10, &local);
	if (status)
		return status;
	out->max_run_insns = insns;
	out->max_local_bytes = (uint32_t)local;
	out->allow_perturb = o->allow_perturb;
	out->allow_races = o->allow_races;
	return 0;
}
