/* instrument.h - what the instrumenter's tests share: files, fragments made on the spot, and ptxas. */
#ifndef TEST_INSTRUMENT_H
#define TEST_INSTRUMENT_H

#include <errno.h>
#include <unistd.h>

#include "instrument/instrument.h"
#include "tap.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)

static const struct ebpf_fragment_func helper_func = { "__egpu_helper",
	".func __egpu_helper(.param .b64 p)\n{\n\t.reg .b64 %r;\n\tld.param.u64 %r, [p];\n"
	"\tred.global.add.u64 [%r+1024], 1;\n\tret;\n}" };

static char *read_golden(const char *name, size_t *size)
{
	char path[1024];
	snprintf(path, sizeof(path), "%s/instrument/%s", GOLDEN_DIR, name);
	FILE *f = fopen(path, "rb");
	if (!f)
		return NULL;
	char *text = calloc(1, 1 << 16);
	*size = fread(text, 1, (1 << 16) - 1, f);
	fclose(f);
	return text;
}

static struct ptx_module *parse_text(const char *text)
{
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	if (ptx_parse(text, strlen(text), &m, &d))
		printf("# %u:%u %s\n", d.line, d.column, d.text);
	return m;
}

/* The named golden file, with another .version and .target when given. */
static struct ptx_module *parse_golden(const char *name, const char *version, const char *target)
{
	size_t size;
	char *text = read_golden(name, &size), *out = malloc(size + 64);
	char *rest = strchr(strchr(text, '\n') + 1, '\n');
	if (target)
		sprintf(out, ".version %s\n.target %s%s", version, target, rest);
	struct ptx_module *m = parse_text(target ? out : text);
	free(text);
	free(out);
	return m;
}

static uint64_t fields_of(enum ebpf_context context)
{
	uint64_t set = 0;
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		if (ebpf_fields[f].contexts >> context & 1)
			set |= UINT64_C(1) << f;
	}
	return set;
}

/* Else stores, branches and barriers alone do: ptxas takes a second for a hundred sites. */
static bool all_gather;

/* Of what a program of a warp may gather at the point, one field of each size. */
static uint64_t lane_fields_of(enum ebpf_point point)
{
	uint64_t set = 0;
	uint32_t sizes = 0;
	if (!all_gather && point != EBPF_POINT_STORE && point != EBPF_POINT_BRANCH && point != EBPF_POINT_BARRIER)
		return 0;
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		bool coordinate = EBPF_COORDINATES >> f & 1;
		if (coordinate || (sizes & ebpf_fields[f].bytes) || ebpf_lane_field_missing(UINT64_C(1) << f, point) >= 0)
			continue;
		set |= UINT64_C(1) << f;
		sizes |= ebpf_fields[f].bytes;
	}
	return set;
}

/* Adds every field it reads to a map, and of a warp all that its lanes have; with a branch and a call in its body. */
static struct ebpf_fragment make_fragment(struct arena *a, enum ebpf_point point, bool warp,
	uint64_t fields)
{
	struct buf b = { 0 };
	uint64_t gathered = warp ? lane_fields_of(point) : 0;
	buf_puts(&b, "{\n\t.reg .b64 %egpu_r1, %egpu_r3;\n\t.reg .b32 %egpu_r2;\n\t.reg .pred %egpu_p;\n"
		     "\tld.const.u64 %egpu_r1, [__egpu_table+8];\n");
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		if (fields >> f & 1)
			buf_printf(&b, "\tred.global.add.u%d [%%egpu_r1+%d], %%egpu_%s;\n",
				ebpf_fields[f].bytes * 8, f * 8, ebpf_fields[f].name);
	}
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		if (gathered >> f & 1)
			buf_printf(&b, "\tmov.u64 %%egpu_r3, $egpu_lanes_%s;\n\tadd.s64 %%egpu_r3, %%egpu_r3, %d;\n"
				"\tld.local.u%d %%egpu_r3, [%%egpu_r3];\n\tred.global.add.u64 [%%egpu_r1+%d], %%egpu_r3;\n",
				ebpf_fields[f].name, 31 * ebpf_fields[f].bytes, ebpf_fields[f].bytes * 8, f * 8);
	}
	buf_puts(&b, "\tmov.u32 %egpu_r2, %tid.x;\n\tsetp.gt.u32 %egpu_p, %egpu_r2, 3;\n"
		     "\t@%egpu_p bra $egpu_1;\n\t{\n\t\t.param .b64 egpu_a;\n"
		     "\t\tst.param.b64 [egpu_a], %egpu_r1;\n"
		     "\t\tcall __egpu_helper, (egpu_a);\n\t}\n$egpu_1:\n}");
	struct ebpf_fragment f = { .name = "probe", .point = point, .warp = warp, .fields = fields,
		.gathered = gathered, .local_bytes = ebpf_lane_bytes(gathered),
		.funcs = (struct ebpf_fragment_func *)&helper_func, .n_funcs = 1,
		.body = arena_strdup(a, b.data) };
	buf_free(&b);
	return f;
}

/* The same with so long a text that sites call it (call.c). */
static struct ebpf_fragment make_large(struct arena *a, const struct ebpf_fragment *f)
{
	enum { LINES = 30000 };
	struct ebpf_fragment out = *f;
	char *body = arena_alloc(a, LINES + strlen(f->body) + 1);
	memset(body + 1, '\n', LINES);
	body[0] = '{';
	strcpy(body + 1 + LINES, f->body + 1);
	out.body = body;
	return out;
}

/* The text with something else at a place of it. */
static inline char *planted_at(struct arena *a, const char *text, const char *at, const char *from, const char *to)
{
	return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static bool have_ptxas(void)
{
	static int have = -1;
	if (have < 0)
		have = !system("PATH=$PATH:/usr/local/cuda/bin command -v ptxas >/dev/null 2>&1");
	return have;
}

/* Whether ptxas takes the text for that target. */
static bool ptxas_accepts(const char *ptx, const char *target)
{
	char path[] = "/tmp/egpu-test-XXXXXX", command[256];
	int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return false;
	fputs(ptx, f);
	fclose(f);
	snprintf(command, sizeof(command),
		"PATH=$PATH:/usr/local/cuda/bin ptxas -O0 -arch=%s %s -o /dev/null 2>&1", target, path);
	bool ok = !system(command);
	unlink(path);
	return ok;
}

#endif
