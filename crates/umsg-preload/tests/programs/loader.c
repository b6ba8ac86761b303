/* `loader FLAGS QUEUE`: loads a library by its name at run time. Only this program's RUNPATH names the directory of the library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void *plugin = dlopen("libumsg_test_plugin.so", atoi(argv[1]));
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*use_queue)(const char *) = (int (*)(const char *))dlsym(plugin, "use_queue");
    return use_queue(argv[2]) != 0;
}
