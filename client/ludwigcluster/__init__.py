"""The names of LudwigCluster, for projects written against it. New code imports `ludwig`."""
