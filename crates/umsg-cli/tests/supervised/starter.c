/* `starter HOW PROGRAM ARGUMENT`: starts PROGRAM with the arguments "name", ARGUMENT and "last", and ends with its exit code. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **given) {
    if (count != 4) return 99;
    char *how = given[1], *path = given[2];
    char *name = strrchr(path, '/') + 1;
    char *arguments[] = {"name", given[3], "last", NULL};
    pid_t child = 0;
    int status;
#define IS(word) (!strcmp(how, word))
    if (IS("execve")) execve(path, arguments, environ);
    if (IS("execv")) execv(path, arguments);
    if (IS("execvp")) execvp(name, arguments);
    if (IS("execvpe")) execvpe(name, arguments, environ);
    if (IS("execl")) execl(path, "name", given[3], "last", NULL);
    if (IS("execlp")) execlp(name, "name", given[3], "last", NULL);
    if (IS("execle")) execle(path, "name", given[3], "last", NULL, environ);
    if (IS("fexecve")) fexecve(open(path, O_RDONLY | O_CLOEXEC), arguments, environ);
    if (IS("execveat")) {
        int directory = open(getenv("PLACE"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        execveat(directory, name, arguments, environ, 0);
    }
    if (IS("syscall")) syscall(SYS_execve, path, arguments, environ);
    if (IS("many")) {
        enum { MANY = 3000 };
        char **all = calloc(MANY + 1, sizeof *all);
        for (int at = 0; at < MANY; at++) all[at] = "x";
        memcpy(all, arguments, sizeof *all);
        all[1] = given[3], all[MANY - 1] = "last";
        execv(path, all);
    }
    if (IS("vfork")) {
        child = vfork();
        if (child == 0) execve(path, arguments, environ), _exit(98);
    }
    if (IS("spawn") && posix_spawn(&child, path, NULL, NULL, arguments, environ)) return 97;
    if (IS("spawnp") && posix_spawnp(&child, name, NULL, NULL, arguments, environ)) return 97;
    if (IS("system")) {
        char line[4096];
        snprintf(line, sizeof line, "%s %s last", path, given[3]);
        status = system(line);
        return WEXITSTATUS(status);
    }
    if (child <= 0 || waitpid(child, &status, 0) != child) return perror(how), 96;
    return WEXITSTATUS(status);
}
