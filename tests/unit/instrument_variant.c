/* instrument_variant.c - the variant's text: what is bound, what is spliced, and that ptxas takes it. */
#include "instrument.h"

static const struct request_set {
	const char *name;
	bool thread, warp, launch, points;
} sets[] = {
	{ "no fragments", false, false, false, false },
	{ "per thread", true, false, true, false },
	{ "per warp", false, true, true, false },
	{ "both, no launch id", true, true, false, false },
	{ "every point", true, true, true, true },
};

struct job {
	struct arena *arena;
	struct ptx_module *m;
	struct ebpf_fragment fragments[24];
	const struct ebpf_fragment *list[24];
	struct instrument_request req;
	struct instrument_result result;
	struct diag d;
};

static void add(struct job *j, enum ebpf_point point, bool warp, uint64_t fields)
{
	uint32_t i = j->req.n_fragments++;
	j->fragments[i] = make_fragment(j->arena, point, warp, fields);
	j->list[i] = &j->fragments[i];
}

static void add_points(struct job *j)
{
	for (int p = EBPF_POINT_BLOCK; p <= EBPF_POINT_LOAD_DONE; p++) {
		for (int warp = 0; warp < 2; warp++)
			add(j, (enum ebpf_point)p, warp, fields_of(ebpf_point_context((enum ebpf_point)p, warp)));
	}
}

static void job_init(struct job *j, const char *file, const char *version, const char *target,
	const struct request_set *set)
{
	uint64_t drop = set->launch ? 0 : BIT(LAUNCH);
	*j = (struct job){ .arena = arena_new(), .m = parse_golden(file, version, target) };
	j->req = (struct instrument_request){ .module = j->m, .kernel = "kernel", .kernel_id = 3,
		.first_site = 100, .fragments = j->list };
	if (set->thread) {
		add(j, EBPF_POINT_ENTRY, false, fields_of(EBPF_CONTEXT_ENTRY) & ~drop);
		add(j, EBPF_POINT_EXIT, false, fields_of(EBPF_CONTEXT_EXIT) & ~drop);
		add(j, EBPF_POINT_MEM, false, fields_of(EBPF_CONTEXT_MEM) & ~drop);
	}
	if (set->warp) {
		add(j, EBPF_POINT_ENTRY, true, fields_of(EBPF_CONTEXT_WARP) & ~drop);
		add(j, EBPF_POINT_LOAD, true, fields_of(EBPF_CONTEXT_WARP_MEM) & ~drop);
		add(j, EBPF_POINT_STORE, true, fields_of(EBPF_CONTEXT_WARP_MEM) & ~drop);
		add(j, EBPF_POINT_ATOMIC, true, BIT(MEM_MASK));
	}
	if (set->points)
		add_points(j);
}

static void job_free(struct job *j)
{
	ptx_module_free(j->m);
	arena_free(j->arena);
}

static int job_run(struct job *j)
{
	int r = instrument_kernel(j->arena, &j->req, &j->result, &j->d);
	if (r)
		printf("# %d line %u: %s\n", r, j->d.line, j->d.text);
	return r;
}

/* The text without arrays of what lanes hand over and without what was spliced: from "{ // egpu site" to its closing brace and the indent behind it. */
static char *without_splices(const char *ptx)
{
	char *out = strdup(ptx), *at;
	while ((at = strstr(out, "{ // egpu site"))) {
		char *end = at;
		int depth = 0;
		do {
			depth += *end == '{';
			depth -= *end == '}';
			end++;
		} while (depth);
		end += strspn(end, "\n");
		end += strspn(end, "\t") ? 1 : 0;
		memmove(at, end, strlen(end) + 1);
	}
	while ((at = strstr(out, "\n\t.local .align 8 .b8 $egpu_lanes_"))) {
		char *end = strstr(at, ";\n") + 2;
		memmove(at, end, strlen(end) + 1);
	}
	return out;
}

static void test_targets(void)
{
	static const struct {
		const char *file, *version, *target;
	} targets[] = {
		{ "memory.ptx", "6.3", "sm_75" }, { "memory.ptx", "7.0", "sm_80" },
		{ "memory.ptx", "8.0", "sm_80, debug" }, { "memory.ptx", "7.8", "sm_90" },
		{ "memory.ptx", "8.0", "sm_90a" }, { "hopper.ptx", "8.0", "sm_90a" },
		{ "async.ptx", "8.6", "sm_90" },
		{ "memory.ptx", "6.0", "sm_52" }, { "memory.ptx", "6.2", "sm_61" }, { "memory.ptx", "6.2", "sm_70" },
		{ "calls.ptx", "6.0", "sm_60" }, { "calls.ptx", "7.5", "sm_75" }, { "calls.ptx", "8.0", "sm_90" },
	};
	for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++) {
		for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++) {
			struct job j;
			char arch[16];
			/* cp.async came with sm_80: the rest of the file is for every target. */
			job_init(&j, targets[t].file, targets[t].version, targets[t].target, &sets[s]);
			is_int(job_run(&j), 0, "%s for %s, %s", targets[t].file, targets[t].target,
				sets[s].name);
			snprintf(arch, sizeof(arch), "%.*s",
				(int)strcspn(targets[t].target, ","), targets[t].target);
			/* "every point" has all that the two before it have. */
			if (sets[s].thread + sets[s].warp == 1)
				tap_skip("another set has more");
			else if (!strncmp(arch, "sm_5", 4) || !strncmp(arch, "sm_6", 4) || !strcmp(arch, "sm_70"))
				tap_skip("ptxas knows no such target: the proof alone");
			else if (!have_ptxas())
				tap_skip("no ptxas");
			else if (!strcmp(arch, "sm_75") && !strcmp(targets[t].file, "memory.ptx"))
				tap_skip("the file uses cp.async");
			else
				ok(j.result.ptx && ptxas_accepts(j.result.ptx, arch),
					"ptxas accepts it");
			job_free(&j);
		}
	}
}

static void test_binding(void)
{
	struct job j;
	job_init(&j, "memory.ptx", NULL, NULL, &sets[0]);
	is_int(job_run(&j), 0, "extraction alone");
	static const char *const symbols[] = { "counter", "pointer", "coefficients", "$str" };
	is_int(j.result.n_symbols, 4, "symbols bound");
	for (int i = 0; i < 4 && j.result.n_symbols == 4; i++)
		is_str(j.result.symbols[i], symbols[i], "symbol %d", i);
	is_int(j.result.table_entries, EBPF_TABLE_SYMBOLS + 4, "entries of the table");
	is_int(j.result.n_probed, 0, "places probed");
	ok(!j.result.launch_param, "no hidden parameter");
	is_int(j.result.n_params, 2, "the original's parameters");
	static const char *const present[] = {
		".version 8.0\n.target sm_80\n.address_size 64\n.visible .const .align 8 .u64 __egpu_table[140];\n",
		".file\t1 \"memory.cu\"\n",
		".shared .align 16 .b8 tile[128];\n",
		".extern .shared .align 16 .b8 dynamic[];\n",
		"\tld.const.u64 %egpu_s0, [__egpu_table+1088];\n\tst.relaxed.gpu.global.u32 [%egpu_s0], %r2;\n",
		"\tadd.s64 %egpu_s5, %egpu_s5, 4;\n\tcvta.global.u64 %rd5, %egpu_s5;\n",
		"\tmov.b64 %rd7, %rd6;\n\tmov.b64 %rd6, %rd7;\n\tld.global.f32 %f5, [%rd6+4];\n",
		"\tld.global.v2.f32 {%f6, %f7}, [%egpu_s7+16];\n",
		"\tld.global.u32 %r3, [%egpu_s0+8];\n",
		".func helper;\n",
	};
	for (size_t i = 0; i < sizeof(present) / sizeof(present[0]); i++)
		ok(strstr(j.result.ptx, present[i]), "text %zu is there", i);
	static const char *const absent[] = { "unused", ".global .align", ".const .align 4",
		"{ // egpu" };
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		ok(!strstr(j.result.ptx, absent[i]), "has no %s", absent[i]);
	job_free(&j);
}

static void test_unbound(void)
{
	static const char *const strings[] = { "$str" }, *const counter[] = { "counter" };
	struct job j;
	job_init(&j, "memory.ptx", NULL, NULL, &sets[0]);
	j.req.unbound = strings;
	j.req.n_unbound = 1;
	is_int(job_run(&j), 0, "a string constant that cannot be bound");
	is_int(j.result.n_symbols, 3, "is not bound");
	ok(strstr(j.result.ptx, ".global .align 1 .b8 $str[3] = {104, 105, 0};\n") &&
			strstr(j.result.ptx, "\tmov.u64 %rd8, $str;\n"),
		"but copied");
	j.req.unbound = counter;
	is_int(job_run(&j), -EOPNOTSUPP, "a counter is not copied");
	ok(strstr(j.d.text, "'counter'"), "and named");
	job_free(&j);
}

static void test_splice_is_removable(void)
{
	struct job plain, spliced;
	job_init(&plain, "memory.ptx", NULL, NULL, &sets[0]);
	job_init(&spliced, "memory.ptx", NULL, NULL, &sets[3]);
	ok(!job_run(&plain) && !job_run(&spliced), "with and without fragments");
	is_int(spliced.result.n_probed, 34, "every site is probed");
	is_int(spliced.result.n_sites, plain.result.n_sites, "sites do not depend on fragments");
	char *rest = without_splices(spliced.result.ptx);
	char *func = strstr(rest, helper_func.text);
	ok(func, "the helper function is there once");
	if (func)
		memmove(func, func + strlen(helper_func.text) + 1,
			strlen(func + strlen(helper_func.text) + 1) + 1);
	is_str(rest, plain.result.ptx, "without the splices both are the same");
	free(rest);
	job_free(&plain);
	job_free(&spliced);
}

static void test_launch(void)
{
	struct job j;
	job_init(&j, "calls.ptx", NULL, NULL, &sets[1]);
	is_int(job_run(&j), 0, "a launch id read in called functions");
	ok(j.result.launch_param, "adds a parameter");
	is_int(j.result.launch_param_offset, 16, "behind those of 8 and 4 bytes");
	ok(strstr(j.result.ptx, "call.uni (%r2), recurse, (%r1, %egpu_call);"), "passed in a recursion");
	ok(strstr(j.result.ptx, "@%p1 call leaf, (%egpu_call);"), "to a function without parameters");
	ok(strstr(j.result.ptx, "@%p1 call renamed, (%rd1, %egpu_call);"), "and through an alias");
	job_free(&j);
}

static void test_empty_kernel(void)
{
	struct job j;
	job_init(&j, "calls.ptx", NULL, NULL, &sets[1]);
	j.req.kernel = "nothing";
	is_int(job_run(&j), 0, "a kernel without parentheses");
	is_int(j.result.n_sites, 2, "has an entry and an exit");
	ok(strstr(j.result.ptx, ".entry nothing(.param .u64 __egpu_launch)"), "takes the launch id");
	if (have_ptxas())
		ok(ptxas_accepts(j.result.ptx, "sm_75"), "ptxas accepts it");
	else
		tap_skip("no ptxas");
	job_free(&j);
}

/* Values stored, as they lie in memory. */
static void test_values(void)
{
	struct job j;
	job_init(&j, "memory.ptx", NULL, NULL, &sets[0]);
	add(&j, EBPF_POINT_STORE, false,
		BIT(VALUE0) | BIT(VALUE1) | BIT(VALUE_BYTES) | BIT(ADDRESS) | BIT(SPACE));
	is_int(job_run(&j), 0, "stores with their values");
	static const char *const present[] = {
		/* {%f1, 1.0f} */
		"\tmov.b32 %egpu_xt1, %f1;\n\tcvt.u64.u32 %egpu_xu0, %egpu_xt1;\n"
		"\tmov.b64 %egpu_value0, %egpu_xu0;\n\tmov.b64 %egpu_xu0, 0x3f800000;\n"
		"\tshl.b64 %egpu_xu0, %egpu_xu0, 32;\n\tor.b64 %egpu_value0, %egpu_value0, %egpu_xu0;\n",
		/* st.f32 1.5, st.f64 -2.0, st.u16 -2 */
		"\tmov.b64 %egpu_xu0, 0x3fc00000;\n",
		"\tmov.b64 %egpu_xu0, 0xc000000000000000;\n",
		"\tmov.b64 %egpu_xu0, 0xfffe;\n",
		/* a 32-bit shared address and a byte of a 32-bit register */
		"\tadd.u32 %egpu_xt1, %r3, 4;\n\tcvt.u64.u32 %egpu_address, %egpu_xt1;\n"
		"\tmov.b32 %egpu_value_bytes, 1;\n\tmov.b32 %egpu_space, 2;\n"
		"\tmov.b64 %egpu_value1, 0;\n\tcvt.u64.u8 %egpu_xu0, %r2;\n",
		/* the guard decides which lanes are here */
		"\t@%p1 bra $egpu_end7;\n",
	};
	for (size_t i = 0; i < sizeof(present) / sizeof(present[0]); i++)
		ok(strstr(j.result.ptx, present[i]), "value form %zu", i);
	job_free(&j);
}

static void test_params(void)
{
	struct job j;
	struct ebpf_fragment_param param = { 1, 4 };
	job_init(&j, "memory.ptx", NULL, NULL, &sets[0]);
	add(&j, EBPF_POINT_ENTRY, false, 0);
	j.fragments[0].params = &param;
	j.fragments[0].n_params = 1;
	is_int(job_run(&j), 0, "a parameter of four bytes");
	ok(strstr(j.result.ptx, "\tld.param.u32 %egpu_param1, [kernel_param_1];\n"), "is read");
	param.bytes = 8;
	is_int(job_run(&j), -EINVAL, "read as eight");
	ok(strstr(j.d.text, "as 8 bytes") && strstr(j.d.text, "has 4"), "says both sizes");
	param.index = 2;
	j.d.err = 0;
	is_int(job_run(&j), -EINVAL, "a parameter that is not there");
	job_free(&j);
}

int main(void)
{
	test_binding();
	test_unbound();
	test_splice_is_removable();
	test_launch();
	test_empty_kernel();
	test_values();
	test_params();
	test_targets();
	return tap_done();
}
