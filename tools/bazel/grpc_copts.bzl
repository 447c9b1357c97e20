"""How code that instantiates gRPC's callback templates is compiled."""

# gRPC's templates are ordered by its library, which is not instrumented: compiled for tsan they show
# races in CallOpSet, CallbackWithSuccessTag and the reactors' wrappers in every run. So the files
# that hold them, the adapters between gRPC and our own code, are compiled as the library is. Their
# locks are still seen, which are calls: what passes through them into our code is ordered, and a
# race planted behind them is found.
GRPC_COPTS = ["-fno-sanitize=thread"]
