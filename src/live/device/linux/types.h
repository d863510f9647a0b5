/* What include/egpu/probe.bpf.h needs of <linux/types.h>, for a target that the host's headers do not know. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
