/* fan.c - the same programs for several sites at one point: each lane that is here runs them for a word of a site.
 *
 * Programs that only add (`repeat` in bpf/fragment.h) run once for all lanes, and once for all that a thread has passed, so where several sites'
 * programs stand together there is a lane for each word of each: they cost as many instructions as one, and the memory system is asked once for
 * words that lie beside each other. (By H200: what a request for an addition costs is the sectors it goes to.) With fewer lanes each takes several.
 *
 *	%egpu_turn = lanes here below this one, %egpu_step = lanes here
 *	again: past the last word of the last site: end
 *		%egpu_index = %egpu_turn / words, %egpu_word = the rest
 *		inputs of site %egpu_index, %egpu_passes; the programs
 *		%egpu_turn += %egpu_step
 */
#include <stdlib.h>
#include <string.h>

#include "instrument/variant.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)

enum { MAX_ODD = 8 }; /* sites with numbers of their own */

bool fan_fits(const struct variant *v, uint64_t fields)
{
	return v->target.activemask && !(fields & (BIT(LANE) | BIT(THREAD_X) | BIT(THREAD_Y) | BIT(THREAD_Z)));
}

bool fan_sums(const struct variant *v, uint64_t fields)
{
	return fan_fits(v, fields) && v->target.version >= 700 && v->target.sm >= 80;
}

/* -- inputs that differ ------------------------------------------------------------------- */

struct line {
	const char *at;
	size_t bytes;
	size_t name; /* bytes up to the number of `mov.b32 REG, NUMBER;`, 0: another form */
	uint32_t value;
};

static struct line line_at(const char *text)
{
	static const char mov[] = "\tmov.b32 %egpu_";
	struct line l = { .at = text, .bytes = strcspn(text, "\n") };
	const char *comma = strncmp(text, mov, sizeof(mov) - 1) ? NULL : memchr(text, ',', l.bytes);
	char *end;

	l.bytes += text[l.bytes] == '\n';
	if (comma && comma[1] == ' ' && comma[2] >= '0' && comma[2] <= '9') {
		l.value = (uint32_t)strtoul(comma + 2, &end, 10);
		l.name = *end == ';' ? (size_t)(comma + 2 - text) : 0;
	}
	return l;
}

static bool same_line(const struct line *a, const struct line *b)
{
	return a->bytes == b->bytes && !memcmp(a->at, b->at, a->bytes);
}

static bool same_register(const struct line *a, const struct line *b)
{
	return a->name && a->name == b->name && !memcmp(a->at, b->at, a->name);
}

/* The register's name, behind the opcode. */
static void add_name(const struct line *l, struct buf *out)
{
	const char *name = memchr(l->at, '%', l->name);

	buf_add(out, name, l->name - 2 - (size_t)(name - l->at));
}

/* Sites whose number is not the first's; *step: what it grows by from site to site, where it does so. */
static uint32_t odd_ones(const struct line *lines, uint32_t n, uint32_t *step)
{
	uint32_t odd = 0, by = n > 1 ? lines[1].value - lines[0].value : 0;
	bool even = true;

	for (uint32_t k = 0; k < n; k++) {
		odd += lines[k].value != lines[0].value;
		even &= lines[k].value == lines[0].value + k * by;
	}
	*step = even ? by : 0;
	return odd;
}

static bool choose_line(const struct line *lines, uint32_t n, struct buf *out)
{
	uint32_t step, odd;
	bool same = true;

	for (uint32_t k = 1; k < n; k++) {
		bool equal = same_line(&lines[0], &lines[k]);
		if (!equal && !same_register(&lines[0], &lines[k]))
			return false;
		same &= equal;
	}
	if (same) {
		buf_add(out, lines[0].at, lines[0].bytes);
		return true;
	}
	odd = odd_ones(lines, n, &step);
	if (step) {
		buf_puts(out, "\tmad.lo.u32 ");
		add_name(&lines[0], out);
		buf_printf(out, ", %%egpu_index, %u, %u;\n", step, lines[0].value);
		return true;
	}
	if (odd > MAX_ODD)
		return false;
	buf_add(out, lines[0].at, lines[0].bytes);
	for (uint32_t k = 1; k < n; k++) {
		if (lines[k].value == lines[0].value)
			continue;
		buf_printf(out, "\tsetp.eq.u32 %%egpu_xp1, %%egpu_index, %u;\n\t@%%egpu_xp1 ", k);
		buf_add(out, lines[k].at + 1, lines[k].bytes - 1);
	}
	return true;
}

bool fan_inputs(const char *const *texts, uint32_t n, struct buf *out)
{
	struct line lines[MAX_FAN];
	const char *at[MAX_FAN];

	for (uint32_t k = 0; k < n; k++)
		at[k] = texts[k];
	while (*at[0]) {
		for (uint32_t k = 0; k < n; k++) {
			if (!*at[k])
				return false;
			lines[k] = line_at(at[k]);
			at[k] += lines[k].bytes;
		}
		if (!choose_line(lines, n, out))
			return false;
	}
	for (uint32_t k = 1; k < n; k++)
		if (*at[k])
			return false;
	return true;
}

/* -- lanes and passes ----------------------------------------------------------------------- */

void fan_declare(struct buf *b)
{
	buf_printf(b, "\t.reg .b32 %%egpu_turn, %%egpu_index, %%egpu_word, %%egpu_step;\n\t.reg .b64 %%egpu_passes, %%egpu_xs<%d>;\n", MAX_COUNTERS);
}

void fan_lanes(const struct variant *v, struct buf *b)
{
	emit_active_mask(&v->target, b, "%egpu_xm");
	buf_puts(b, "\tmov.u32 %egpu_xt0, %lanemask_lt;\n"
		    "\tand.b32 %egpu_xt0, %egpu_xt0, %egpu_xm;\n"
		    "\tpopc.b32 %egpu_turn, %egpu_xt0;\n"
		    "\tpopc.b32 %egpu_step, %egpu_xm;\n");
}

/* In two pieces, whose sums over 32 lanes do not overflow as long as no thread has passed 2^54 times: in a year it cannot. */
static void sum_counter(uint32_t counter, struct buf *b)
{
	for (uint32_t at = 0; at < 54; at += 27) {
		buf_printf(b,
			"\tshr.u64 %%egpu_xu0, %" COUNT_REG "%u, %u;\n"
			"\tcvt.u32.u64 %%egpu_xt1, %%egpu_xu0;\n"
			"\tand.b32 %%egpu_xt1, %%egpu_xt1, 0x7ffffff;\n"
			"\tredux.sync.add.u32 %%egpu_xt2, %%egpu_xt1, %%egpu_xm;\n"
			"\tcvt.u64.u32 %%egpu_xu0, %%egpu_xt2;\n",
			counter, at);
		if (!at)
			buf_printf(b, "\tmov.u64 %%egpu_xs%u, %%egpu_xu0;\n", counter);
		else
			buf_printf(b, "\tshl.b64 %%egpu_xu0, %%egpu_xu0, %u;\n\tadd.s64 %%egpu_xs%u, %%egpu_xs%u, %%egpu_xu0;\n", at, counter,
				counter);
	}
}

void fan_turn(uint32_t words, struct buf *b)
{
	buf_printf(b, "\tshr.u32 %%egpu_index, %%egpu_turn, %u;\n\tand.b32 %%egpu_word, %%egpu_turn, %u;\n", words / 2, words - 1);
}

void fan_counters(const struct variant *v, bool sums, uint32_t counters, struct buf *b)
{
	if (sums)
		fan_lanes(v, b);
	else
		buf_puts(b, "\tmov.u32 %egpu_turn, 0;\n\tmov.u32 %egpu_step, 1;\n");
	for (uint32_t c = 0; c < MAX_COUNTERS; c++) {
		if (!(counters >> c & 1))
			continue;
		if (sums)
			sum_counter(c, b);
		else
			buf_printf(b, "\tmov.u64 %%egpu_xs%u, %" COUNT_REG "%u;\n", c, c);
	}
}

void fan_passes(const uint32_t *counter, uint32_t n, struct buf *b)
{
	for (uint32_t k = 0; k < n; k++) {
		if (!k)
			buf_printf(b, "\tmov.u64 %%egpu_passes, %%egpu_xs%u;\n", counter[0]);
		else if (counter[k] != counter[k - 1])
			buf_printf(b, "\tsetp.ge.u32 %%egpu_xp1, %%egpu_index, %u;\n\t@%%egpu_xp1 mov.u64 %%egpu_passes, %%egpu_xs%u;\n", k,
				counter[k]);
	}
}
