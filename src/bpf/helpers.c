#include "bpf/helpers.h"

#include <stddef.h>

static const struct ebpf_helper helpers[] = {
#define HELPER(number_, name_, ret_, a1, a2, a3, a4, a5, cost_)                                    \
	{ number_, #name_, EBPF_RET_##ret_,                                                        \
		{ EBPF_ARG_##a1, EBPF_ARG_##a2, EBPF_ARG_##a3, EBPF_ARG_##a4, EBPF_ARG_##a5 }, cost_ },
	EBPF_HELPERS(HELPER)
#undef HELPER
};

const struct ebpf_helper *ebpf_helper_by_number(uint32_t number)
{
	for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
		if (helpers[i].number == number)
			return &helpers[i];
	return NULL;
}
