/* Processes that egpu attach has to refuse, and one that traces:
 *
 *	odd map FILE...     has these files mapped, and waits
 *	odd strict FILE...  the same in strict seccomp mode
 *	odd trace PID       traces that process until it is killed
 */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char c;
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "trace")) {
		printf(ptrace(PTRACE_SEIZE, atoi(argv[2]), 0, 0) ? "cannot\n" : "running\n");
		fflush(stdout);
		pause();
	}
	for (int i = 2; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY);
		if (fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			return 3;
	}
	printf("running\n");
	fflush(stdout);
	if (!strcmp(argv[1], "strict"))
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
