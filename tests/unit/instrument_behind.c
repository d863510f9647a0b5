/* instrument_behind.c - counting probes go behind the loads of their stretch of code, and no further than control is sure to come. */
#include "instrument.h"

static const char source[] =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".visible .entry kernel(.param .u64 data)\n{\n"
	"\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n\t.reg .pred %p<3>;\n"
	"\tld.param.u64 %rd1, [data];\n"
	"\tld.global.u32 %r1, [%rd1];\n"		  /* 1 */
	"\tadd.s64 %rd2, %rd1, 8;\n"
	"\tld.global.u32 %r2, [%rd2];\n"		  /* 2 */
	"\tadd.u32 %r3, %r1, %r2;\n"
	"\tst.global.u32 [%rd1+16], %r3;\n"		  /* 3 */
	"\tbar.sync 0;\n"
	"\tld.global.u64 %rd3, [%rd1+24];\n"		  /* 4 */
	"\tld.global.u32 %r4, [%rd3];\n"		  /* 5: waits for 4 */
	"\tsetp.eq.u32 %p1, %r4, 0;\n"
	"\t@%p1 bra $on;\n"
	"\tsetp.eq.u32 %p2, %r2, 0;\n"
	"\t@%p2 ld.global.u32 %r5, [%rd1+32];\n"	  /* 6: has a guard */
	"\tld.u32 %r6, [%rd1+36];\n"			  /* 7: may be anything */
	"\tst.global.u32 [%rd1+40], %r6;\n"		  /* 8 */
	"$on:\n"
	"\tst.global.u32 [%rd1+44], %r4;\n"		  /* 9: no load here: where the last site is */
	"\tld.shared.u32 %r7, [%r4];\n"		  /* 10: and none that is slow */
	"\tret;\n}\n";

/* What stands before and behind each site's probe: the nearest instructions of the source. */
static const struct {
	uint32_t site;
	const char *after, *before;
} moved[] = {
	{ 1, "ld.global.u32 %r2", "add.u32 %r3" },
	{ 2, "ld.global.u32 %r2", "add.u32 %r3" },
	{ 3, "ld.global.u32 %r2", "add.u32 %r3" },
	{ 4, "ld.global.u64 %rd3", "ld.global.u32 %r4" },
	{ 5, "ld.global.u64 %rd3", "ld.global.u32 %r4" },
	{ 6, "setp.eq.u32 %p2", "@%p2 ld.global.u32 %r5" },
	{ 7, "@%p2 ld.global.u32 %r5", "ld.u32 %r6" },
	{ 8, "ld.u32 %r6", "st.global.u32 [%rd1+40]" },
	{ 9, "st.global.u32 [%rd1+44]", "ld.shared.u32 %r7" },
	{ 10, "st.global.u32 [%rd1+44]", "ld.shared.u32 %r7" },
};

/* Statements as they follow each other without splices: the one before or behind the probe. */
static const char *neighbour(const char *ptx, uint32_t site, bool before)
{
	static char line[256];
	char marker[64];
	snprintf(marker, sizeof(marker), "{ // egpu site %u\n", site);
	const char *at = strstr(ptx, marker), *found = NULL;
	int depth = 0;
	for (const char *p = strstr(ptx, "\tld.param.u64 %rd1"); at && p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
		const char *text = p + strspn(p, "\t ");
		if (*text == '{' && !strchr("%r", text[1])) {
			depth++;
		} else if (*text == '}') {
			depth--;
		} else if (!depth && *text && *text != '\n') {
			if (before && p < at)
				found = text;
			if (!before && p > at && !found)
				found = text;
		}
	}
	snprintf(line, sizeof(line), "%.*s", found ? (int)strcspn(found, "\n") : 0, found ? found : "");
	return line;
}

static bool stands(const char *ptx, uint32_t site, const char *after, const char *before)
{
	bool good = !strncmp(neighbour(ptx, site, true), after, strlen(after));
	if (!good)
		printf("# before it: %s\n", neighbour(ptx, site, true));
	if (good && strncmp(neighbour(ptx, site, false), before, strlen(before))) {
		printf("# behind it: %s\n", neighbour(ptx, site, false));
		good = false;
	}
	return good;
}

static const char *instrumented(struct arena *arena, const struct ptx_module *m, bool anywhere, enum ebpf_point point)
{
	static struct ebpf_fragment f;
	static const struct ebpf_fragment *list[] = { &f };
	struct instrument_request req = { .module = m, .kernel = "kernel", .fragments = list, .n_fragments = 1 };
	struct instrument_result r;
	struct diag d = { 0 };
	f = make_fragment(arena, point, false, BIT(SITE) | BIT(BYTES));
	f.anywhere = anywhere;
	if (instrument_kernel(arena, &req, &r, &d)) {
		printf("# %s\n", d.text);
		return "";
	}
	return r.ptx;
}

int main(void)
{
	struct arena *arena = arena_new();
	struct ptx_module *m = parse_text(source);
	const char *ptx = instrumented(arena, m, true, EBPF_POINT_MEM);

	for (size_t i = 0; i < sizeof(moved) / sizeof(*moved); i++)
		ok(stands(ptx, moved[i].site, moved[i].after, moved[i].before), "site %u stands behind %s", moved[i].site, moved[i].after);
	ptx = instrumented(arena, m, false, EBPF_POINT_MEM);
	ok(stands(ptx, 1, "ld.param.u64 %rd1", "ld.global.u32 %r1"), "a program that does more stays before its access");
	ok(stands(ptx, 2, "add.s64 %rd2", "ld.global.u32 %r2"), "and so at the next");
	ok(stands(ptx, 3, "add.u32 %r3", "st.global.u32 [%rd1+16]"), "and so at a store");
	ptx_module_free(m);
	arena_free(arena);
	return tap_done();
}
