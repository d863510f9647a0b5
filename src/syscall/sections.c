/* Tells libbpf what sections "gpu/..." and "gpu.warp/..." are; "kprobe/..." and "kretprobe/..." are of GPU kernels, too. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "syscall/loader.h"
#include "syscall/object.h"

/* The section's own name is what bpf(2) gets, so that both spellings meet in one place. */
static int attach_section(const struct bpf_program *prog, long cookie, struct bpf_link **link)
{
	*link = bpf_program__attach_raw_tracepoint(prog, bpf_program__section_name(prog));
	return *link ? 0 : -errno;
}

/* What the program sees, for a function whose argument does not say it. */
static int hand_context_over(struct bpf_program *prog, long cookie)
{
	enum ebpf_point point;
	bool warp;
	const char *pattern;
	if (ebpf_section_parse(bpf_program__section_name(prog), &point, &warp, &pattern))
		return 0; /* bpf(2) gets no link for it, and says why */
	bpf_program__set_expected_attach_type(
		prog, (enum bpf_attach_type)(SECTION_CONTEXT + ebpf_point_context(point, warp)));
	return 0;
}

int loader_register_sections(struct diag *d)
{
	static const char *const sections[] = { "gpu+", "gpu.warp+", "kprobe+", "kretprobe+" };
	LIBBPF_OPTS(libbpf_prog_handler_opts, opts, .prog_setup_fn = hand_context_over, .prog_attach_fn = attach_section);
	/* Our maps are files: the limit that libbpf would raise does not apply to them. */
	libbpf_set_memlock_rlim(0);
	for (int i = 0; i < 4; i++) {
		int id = libbpf_register_prog_handler(
			sections[i], BPF_PROG_TYPE_RAW_TRACEPOINT, 0, &opts);
		if (id < 0)
			return diag_set(d, -id, "libbpf does not take section %s: %s", sections[i],
				strerror(-id));
	}
	return 0;
}
