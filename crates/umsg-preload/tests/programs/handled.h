/* A handler that counts. */
static volatile sig_atomic_t signals;

static void on_signal(int number) {
    (void)number;
    signals++;
}
