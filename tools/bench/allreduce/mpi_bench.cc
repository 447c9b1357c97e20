// The peer with Open MPI: mpirun -n N mpi_bench. Same sizes, same figure as allreduce_bench.
// Built by the bench script with mpicxx, since no test needs MPI.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t bytes : {4 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20}) {
    const int count = static_cast<int>(bytes / sizeof(float));
    std::vector<float> data(static_cast<size_t>(count));
    const int iterations =
        static_cast<int>(std::clamp<size_t>((size_t{400} << 20) / bytes, 9, 2000));
    std::vector<double> times;
    for (int i = -3; i < iterations; ++i) {
      std::fill(data.begin(), data.end(), 1.0f);
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (i >= 0) times.push_back((MPI_Wtime() - begin) * 1e6);
    }
    MPI_Allreduce(MPI_IN_PLACE, times.data(), iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    if (rank == 0) {
      std::printf(
          "{\"backend\": \"openmpi\", \"memory\": \"private\", \"ranks\": %d, "
          "\"bytes\": %zu, \"us\": %.1f}\n",
          ranks, bytes, times[times.size() / 2]);
    }
  }
  MPI_Finalize();
  return 0;
}
