#include "map/file.h"
#include "map/map.h"

#include <fcntl.h>
#include <unistd.h>

/* Adds up "0-3,8-11", as libbpf does to size the buffers of per-CPU maps. */
static uint64_t count_cpus(const char *p)
{
	uint64_t n = 0, first, last;
	while (parse_u64(&p, &first)) {
		last = first;
		if (*p == '-') {
			p++;
			if (!parse_u64(&p, &last))
				return 0;
		}
		if (last < first || last >= 65536)
			return 0;
		n += last - first + 1;
		if (*p == ',')
			p++;
	}
	return n;
}

uint32_t map_possible_cpus(void)
{
	char text[256] = "";
	int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	uint64_t n = count_cpus(text);
	if (!n) {
		long known = sysconf(_SC_NPROCESSORS_CONF);
		n = known > 0 ? (uint64_t)known : 1;
	}
	return (uint32_t)n;
}
