/* fragment.c - fuzz target: any text as a fragment is refused with a sentence, or prints to a text that reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "bpf/fragment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena *a = arena_new();
	struct ebpf_fragment f, again;
	struct diag d = { 0 };
	struct buf first = { 0 }, second = { 0 };
	char *text = malloc(size ? size : 1);
	if (a && text) {
		memcpy(text, data, size);
		int err = ebpf_fragment_parse(a, text, size, &f, &d);
		if (err && !d.text[0])
			abort();
		if (!err) {
			ebpf_fragment_print(&f, &first);
			if (ebpf_fragment_parse(a, first.data, first.len, &again, NULL))
				abort();
			ebpf_fragment_print(&again, &second);
			if (first.len != second.len || memcmp(first.data, second.data, first.len))
				abort();
		}
	}
	buf_free(&first);
	buf_free(&second);
	free(text);
	arena_free(a);
	return 0;
}
