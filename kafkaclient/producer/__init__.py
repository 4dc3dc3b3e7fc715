from kafkaclient.compiled_modules import choose_native

choose_native()
