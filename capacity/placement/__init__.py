"""Read allocations, pods and nodes, and find out where pods that wait would fit."""
