/*
 * Notices that this process goes on in another life of its machine, and gives OpenSSL's generators new seeds: in every
 * program that uses libcrypto, also behind TLS. What comes from getrandom() is new in each life by itself.
 *
 * Prints 16 bytes of RAND_bytes for each line that it reads. On the line "renew" it looks for a new life first.
 *
 *     cc generation.c -o draw -lcrypto
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/rand.h>

#define GENERATION_PATH "/run/coppice/generation"

struct generation {
    int file;
    char seen[32];
};

/* 0, or -1 with errno. */
static int generation_read(const struct generation *generation, char value[32])
{
    memset(value, 0, 32);
    return pread(generation->file, value, 32, 0) > 0 ? 0 : -1;
}

static int generation_open(struct generation *generation, const char *path)
{
    generation->file = open(path, O_RDONLY | O_CLOEXEC);
    return generation->file < 0 ? -1 : generation_read(generation, generation->seen);
}

/*
 * To be called before numbers are drawn that must differ between siblings; one system call where nothing is new.
 * 1: a new life, and new seeds; 0: the same life; -1: no way to tell, draw nothing.
 */
static int generation_renew(struct generation *generation)
{
    char now[32];
    if (generation_read(generation, now) != 0)
        return -1;
    if (memcmp(now, generation->seen, sizeof now) == 0)
        return 0;
    /* Seeds the primary generator from the kernel; those of the threads follow with their next number. */
    if (RAND_poll() != 1)
        return -1;
    memcpy(generation->seen, now, sizeof now);
    return 1;
}

int main(int count, char **arguments)
{
    struct generation generation;
    if (generation_open(&generation, count > 1 ? arguments[1] : GENERATION_PATH) != 0) {
        perror("generation");
        return 1;
    }
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned char bytes[16];
        int renewed = strcmp(line, "renew\n") == 0 ? generation_renew(&generation) : 0;
        if (renewed < 0 || RAND_bytes(bytes, sizeof bytes) != 1)
            return 1;
        printf("%s ", renewed ? "new" : "same");
        for (size_t index = 0; index < sizeof bytes; index++)
            printf("%02x", bytes[index]);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
