#include "bpf/helpers.h"

#include <stddef.h>

static const struct ebpf_helper helpers[] = {
#define HELPER(number_, name_, ret_, a1, a2, a3, a4, a5, where_, result_, cost_, class_)           \
	{ .number = number_,                                                                       \
		.name = #name_,                                                                    \
		.ret = EBPF_RET_##ret_,                                                            \
		.args = { EBPF_ARG_##a1, EBPF_ARG_##a2, EBPF_ARG_##a3, EBPF_ARG_##a4,              \
			EBPF_ARG_##a5 },                                                           \
		.where = EBPF_WHERE_##where_,                                                      \
		.result = EBPF_RESULT_##result_,                                                   \
		.class = EBPF_CLASS_##class_,                                                      \
		.cost = cost_ },
	EBPF_HELPERS(HELPER)
#undef HELPER
};

static const struct {
	uint32_t number;
	const char *name, *why;
} refused[] = {
#define REFUSED(number_, name_, why_) { number_, #name_, why_ },
	EBPF_HELPERS_REFUSED(REFUSED)
#undef REFUSED
};

const struct ebpf_helper *ebpf_helper_at(uint32_t index)
{
	return index < sizeof(helpers) / sizeof(helpers[0]) ? &helpers[index] : NULL;
}

const struct ebpf_helper *ebpf_helper_by_number(uint32_t number)
{
	for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
		if (helpers[i].number == number)
			return &helpers[i];
	return NULL;
}

const char *ebpf_helper_refused(uint32_t number, const char **name)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (refused[i].number == number) {
			*name = refused[i].name;
			return refused[i].why;
		}
	return NULL;
}

uint32_t ebpf_puts_format(const char *s, uint32_t len, char *out)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < len; i++) {
		out[n++] = s[i];
		if (s[i] == '%')
			out[n++] = '%';
	}
	out[n++] = '\0';
	return n;
}
