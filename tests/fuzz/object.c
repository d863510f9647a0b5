/* object.c - fuzz target: any bytes as NAME.bpf.o take the whole road of `egpu verify`: our checks of the file, libbpf, bpf(2) in
 * user space, the verifier, the translator.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/cli.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	const char *args[] = { path, NULL };
	struct opt_rest rest = { .args = args, .n_args = 1 };
	int fd = memfd_create("fuzz.bpf.o", 0);
	void *opts = calloc(1, cmd_verify.opts_bytes + 1);
	if (fd < 0 || !opts || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cmd_verify.run(opts, &rest);
	free(opts);
	close(fd);
	return 0;
}
