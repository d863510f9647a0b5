/* instrument_sites.c - which places of a kernel are sites: exact list, exact facts, and what is left alone. */
#include "instrument.h"

struct expected {
	enum ebpf_point point;
	uint32_t ptx_line, line; /* line: of .loc, 0 without */
	const char *opcode;
	enum ptx_space space;
	uint32_t bytes;
	bool skipped;
};

static void check(const char *file, const char *kernel, const struct expected *want, uint32_t n)
{
	struct ptx_module *m = parse_golden(file, NULL, NULL);
	struct arena *a = arena_new();
	struct instrument_site *sites;
	struct diag d = { 0 };
	uint32_t got;
	is_int(instrument_sites(a, m, kernel, &sites, &got, &d), 0, "%s: sites of %s", file, kernel);
	is_int(got, n, "their number");
	for (uint32_t i = 0; i < got && i < n; i++) {
		const struct instrument_site *s = &sites[i];
		if (!ok(s->ordinal == i && s->point == want[i].point &&
				    s->ptx_line == want[i].ptx_line && s->line == want[i].line &&
				    !strcmp(s->opcode, want[i].opcode) &&
				    s->space == want[i].space && s->bytes == want[i].bytes &&
				    !s->skipped == !want[i].skipped,
			    "site %u: %s", i, want[i].opcode))
			printf("# point %d ptx %u loc %u %s space %d bytes %u %s\n", s->point,
				s->ptx_line, s->line, s->opcode, s->space, s->bytes,
				s->skipped ? s->skipped : "");
	}
	ptx_module_free(m);
	arena_free(a);
}

#define LD EBPF_POINT_LOAD
#define ST EBPF_POINT_STORE
#define AT EBPF_POINT_ATOMIC
#define GENERIC PTX_SPACE_GENERIC
#define GLOBAL PTX_SPACE_GLOBAL
#define SHARED PTX_SPACE_SHARED

int main(void)
{
	static const struct expected memory[] = {
		{ LD, 23, 7, "ld.u32", GENERIC, 4, false },
		{ EBPF_POINT_EXIT, 25, 7, "exit", 0, 0, false },
		{ LD, 26, 7, "ld.const.u32", PTX_SPACE_CONST, 4, false },
		{ LD, 39, 0, "ld.global.u32", GLOBAL, 4, false },
		{ EBPF_POINT_ENTRY, 59, 20, "entry", 0, 0, false },
		{ EBPF_POINT_EXIT, 63, 20, "ret", 0, 0, false },
		{ LD, 65, 21, "ld.global.nc.v4.f32", GLOBAL, 16, false },
		{ ST, 66, 21, "st.global.v2.f32", GLOBAL, 8, false },
		{ LD, 67, 21, "ld.global.u64", GLOBAL, 8, false },
		{ ST, 69, 21, "st.shared.u8", SHARED, 1, false },
		{ ST, 70, 21, "st.shared.u8", SHARED, 1, false },
		{ ST, 71, 21, "st.volatile.shared.v4.u16", SHARED, 8, false },
		{ LD, 72, 21, "ld.shared.f64", SHARED, 8, false },
		{ ST, 73, 21, "st.local.u64", PTX_SPACE_LOCAL, 8, false },
		{ ST, 74, 21, "st.b32", GENERIC, 4, false },
		{ ST, 75, 21, "st.f32", GENERIC, 4, false },
		{ ST, 76, 21, "st.f64", GENERIC, 8, false },
		{ ST, 77, 21, "st.u16", GENERIC, 2, false },
		{ ST, 78, 21, "st.global.u32", GLOBAL, 4, false },
		{ ST, 79, 21, "st.global.v4.f32", GLOBAL, 16, false },
		{ ST, 80, 21, "st.relaxed.gpu.global.u32", GLOBAL, 4, false },
		{ AT, 81, 21, "atom.global.add.u32", GLOBAL, 4, false },
		{ AT, 82, 21, "red.global.add.f32", GLOBAL, 4, false },
		{ AT, 83, 21, "atom.global.cas.b32", GLOBAL, 4, false },
		{ AT, 84, 21, "atom.global.exch.b64", GLOBAL, 8, false },
		{ ST, 86, 21, "st.global.u64", GLOBAL, 8, false },
		{ LD, 91, 21, "ld.const.f32", PTX_SPACE_CONST, 4, false },
		{ LD, 92, 21, "ld.const.v2.f32", PTX_SPACE_CONST, 8, false },
		{ LD, 93, 21, "cp.async.ca.shared.global", GLOBAL, 8, false },
		{ LD, 94, 21, "cp.async.cg.shared.global", GLOBAL, 16, false },
		{ LD, 102, 21, "ld.global.u32", GLOBAL, 4, false },
		{ ST, 118, 21, "st.global.u32", GLOBAL, 4, false },
		{ EBPF_POINT_EXIT, 119, 21, "exit", 0, 0, false },
		{ EBPF_POINT_EXIT, 122, 40, "}", 0, 0, false },
	};
	static const struct expected hopper[] = {
		{ EBPF_POINT_ENTRY, 12, 0, "entry", 0, 0, false },
		{ LD, 17, 0, "ld.global.u32", GLOBAL, 4, false },
		{ LD, 21, 0, "ld.global.u32", GLOBAL, 4, true },
		{ LD, 32, 0, "ld.global.u32", GLOBAL, 4, true },
		{ ST, 34, 0, "st.global.v4.f32", GLOBAL, 16, false },
		{ EBPF_POINT_EXIT, 37, 0, "ret", 0, 0, false },
	};
	check("memory.ptx", "kernel", memory, sizeof(memory) / sizeof(memory[0]));
	check("hopper.ptx", "kernel", hopper, sizeof(hopper) / sizeof(hopper[0]));
	return tap_done();
}
