/* filter.c - see filter.h. */
#include "cli/filter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "instrument/instrument.h"

static int number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end = NULL;
	errno = 0;
	*out = text ? strtoull(text, &end, 10) : 0;
	if (text && (errno || end == text || *end || *text < '0' || *text > '9' || *out < min ||
			    *out > max))
		return say_fail("--%s: '%s' is no number from %" PRIu64 " to %" PRIu64, option, text,
			min, max);
	return 0;
}

int filter_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "m", 60e9 },
		{ "h", 3600e9 } };
	char *end;
	*ns = 0;
	if (!text)
		return 0;
	double n = strtod(text, &end);
	for (size_t i = 0; *text >= '0' && *text <= '9' && i < sizeof(units) / sizeof(units[0]);
		i++)
		if (!strcmp(end, units[i].name) && n > 0 && n * units[i].ns < 1e18) {
			*ns = (uint64_t)(n * units[i].ns);
			return *ns ? 0 : say_fail("--for: '%s' is no time", text);
		}
	return say_fail("--for: '%s' is no time: write 10 or 10s, 500ms, 2m, 1h", text);
}

/* "5" and "5%", fractions too. */
static int percentage(const char *text, uint64_t *ppm)
{
	char *end;
	*ppm = 0;
	if (!text)
		return 0;
	double p = strtod(text, &end);
	if (*text < '0' || *text > '9' || (*end && strcmp(end, "%")) || p < 0.01 || p > 1e6)
		return say_fail("--max-overhead: '%s' is no percentage from 0.01 on", text);
	*ppm = (uint64_t)(p * 1e4);
	return 0;
}

/* Two runs choose differently, unless they are told not to. */
static uint64_t random_seed(void)
{
	uint64_t seed = 0;
	return getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed) ? seed : (uint64_t)getpid();
}

bool filter_chooses(const struct session_filter *f)
{
	return f->skip || f->launches || f->for_ns || f->device || f->stream || session_samples(f);
}

int filter_read(const struct filter_opts *o, struct session_filter *out)
{
	uint64_t device, stream, warps;
	memset(out, 0, sizeof(*out));
	if (number("skip", o->skip, 0, UINT64_C(1) << 62, &out->skip) ||
		number("launches", o->launches, 1, UINT64_C(1) << 62, &out->launches) ||
		number("device", o->device, 0, 1023, &device) ||
		number("stream", o->stream, 0, 1000000000, &stream) ||
		number("sample-warps", o->sample_warps, 1, INSTRUMENT_MAX_ONE_IN, &warps) ||
		number("seed", o->seed, 0, UINT64_MAX - 1, &out->sample_seed) ||
		filter_duration(o->duration, &out->for_ns) ||
		percentage(o->max_overhead, &out->max_overhead_ppm))
		return EGPU_FAILED;
	if (o->sample_warps && o->max_overhead)
		return say_fail("--sample-warps says how many warps, --max-overhead finds out: give one of them");
	if (o->seed && !o->sample_warps && !o->max_overhead)
		return say_fail("--seed is of --sample-warps and --max-overhead");
	out->sample_warps = o->sample_warps ? (uint32_t)warps : 0;
	if (!o->seed)
		out->sample_seed = random_seed();
	out->device = o->device ? (uint32_t)device + 1 : 0;
	out->stream = o->stream ? (uint32_t)stream + 1 : 0;
	out->active = filter_chooses(out);
	return 0;
}

int filter_check_device(const struct session_filter *f, int n_devices)
{
	if (!f->device || n_devices <= 0 || f->device <= (uint32_t)n_devices)
		return 0;
	if (n_devices == 1)
		return say_fail("--device %u: there is one device, number 0", f->device - 1);
	return say_fail("--device %u: there are %d devices, numbers 0 to %d", f->device - 1, n_devices, n_devices - 1);
}

bool filter_samples_live(const struct filter_opts *o, bool live)
{
	return live && (o->sample_warps || o->max_overhead) &&
	       say_fail("--live runs programs in all warps: --sample-warps and --max-overhead are for programs that are compiled into kernels");
}

void filter_apply(struct session *s, const struct session_filter *f)
{
	struct session_filter *to = &session_data(s)->filter;
	if (!f->active)
		return;
	*to = *f;
	to->active = 0;
	__atomic_store_n(&to->active, 1, __ATOMIC_RELEASE);
}

void filter_text(const struct session_filter *f, struct buf *text)
{
	if (!f->active)
		return;
	buf_puts(text, "  chosen:");
	if (f->device)
		buf_printf(text, " device %u,", f->device - 1);
	if (f->stream)
		buf_printf(text, " stream %u,", f->stream - 1);
	if (f->max_overhead_ppm)
		buf_printf(text, " at most %g%% slower,", (double)f->max_overhead_ppm / 1e4);
	if (f->sample_warps)
		buf_printf(text, " one warp in %u (seed %" PRIu64 "),", f->sample_warps, f->sample_seed);
	if (f->for_ns)
		buf_printf(text, " for %g s,", (double)f->for_ns / 1e9);
	if (f->launches)
		buf_printf(text, " launches %" PRIu64 " to %" PRIu64 " of %" PRIu64 "\n", f->skip + 1,
			f->skip + f->launches, f->seen);
	else if (f->skip)
		buf_printf(text, " launches from %" PRIu64 " on, of %" PRIu64 "\n", f->skip + 1,
			f->seen);
	else
		buf_printf(text, " %" PRIu64 " launch%s\n", f->seen, f->seen == 1 ? "" : "es");
}
