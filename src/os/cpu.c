/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int weft__read_file(const char *path, char *buf, size_t size) {
    if (weft__fault()) return -weft__fault_errno;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t n = 0;
    ssize_t r = 0;
    while (n < size - 1 && (r = read(fd, buf + n, size - 1 - n)) != 0) {
        if (r > 0)
            n += (size_t)r;
        else if (errno != EINTR)
            break;
    }
    int err = r < 0 ? -errno : (int)n;
    close(fd);
    buf[n] = 0;
    return err;
}

/* The kernel refuses a mask that is smaller than its own, so the mask grows until it fits. */
static int affinity_count(void) {
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
        if (weft__fault()) return 1;
        size_t size = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *mask = CPU_ALLOC(cpus);
        if (!mask) return 1;
        int ok = sched_getaffinity(0, size, mask) == 0, refused = !ok && errno == EINVAL;
        int n = ok ? CPU_COUNT_S(size, mask) : 0;
        CPU_FREE(mask);
        if (ok) return n > 0 ? n : 1;
        if (!refused) return 1;
    }
    return 1;
}

static int round_up(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long n = (quota - 1) / period + 1;
    return n > INT_MAX ? 0 : (int)n;
}

/* cgroup v2, one directory: cpu.max is "max 100000" or "150000 100000". 0: no limit here. */
static int quota_v2(const char *dir) {
    char path[PATH_MAX], text[128];
    long long quota, period;
    if (snprintf(path, sizeof path, "%s/cpu.max", dir) >= (int)sizeof path) return 0;
    if (weft__read_file(path, text, sizeof text) < 0) return 0;
    return sscanf(text, "%lld %lld", &quota, &period) == 2 ? round_up(quota, period) : 0;
}

/* cgroup v1, one directory: two files, quota -1 for none. */
static int quota_v1(const char *dir) {
    char path[PATH_MAX], quota[64], period[64];
    if (snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir) >= (int)sizeof path) return 0;
    if (weft__read_file(path, quota, sizeof quota) < 0) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (weft__read_file(path, period, sizeof period) < 0) return 0;
    return round_up(atoll(quota), atoll(period));
}

static int least(int a, int b) {
    return !a || (b && b < a) ? b : a;
}

/* A limit of any ancestor holds too. Inside a container the path may be the host's, which is not there: then only the upper
 * directories are found, which are the container's own. */
static int quota_upwards(const char *mount, const char *group, int (*quota)(const char *dir)) {
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof dir, "%s%s", mount, group), found = 0;
    if (n < 0 || n >= (int)sizeof dir) return 0;
    size_t top = strlen(mount);
    for (;;) {
        found = least(found, quota(dir));
        if (strlen(dir) <= top) return found;
        *strrchr(dir, '/') = 0;
    }
}

/* True if "cpu" is one of the comma-separated controllers. */
static bool has_cpu(const char *list) {
    for (const char *p = list; (p = strstr(p, "cpu")); p += 3)
        if ((p == list || p[-1] == ',') && (p[3] == ',' || p[3] == 0)) return true;
    return false;
}

/* One line of /proc/self/cgroup: "0::/a/b" (v2) or "4:cpu,cpuacct:/a/b" (v1). */
static int quota_of_line(char *line, const char *root) {
    char mount[PATH_MAX];
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    if (!group || group[1] != '/') return 0;
    *list++ = 0;
    *group++ = 0;
    if (*list == 0) {
        int found = quota_upwards(root, group, quota_v2);
        if (snprintf(mount, sizeof mount, "%s/unified", root) >= (int)sizeof mount) return found;
        return least(found, quota_upwards(mount, group, quota_v2));
    }
    if (!has_cpu(list) || snprintf(mount, sizeof mount, "%s/%s", root, list) >= (int)sizeof mount) return 0;
    int found = quota_upwards(mount, group, quota_v1);
    if (found || snprintf(mount, sizeof mount, "%s/cpu", root) >= (int)sizeof mount) return found;
    return quota_upwards(mount, group, quota_v1);
}

int weft__cpu_quota(const char *self, const char *root) {
    char text[4096], *rest = NULL;
    int found = 0;
    if (weft__read_file(self, text, sizeof text) < 0) return 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        found = least(found, quota_of_line(line, root));
    return found;
}

int weft__cpu_count(void) {
    int n = affinity_count();
    return least(n, weft__cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
}
