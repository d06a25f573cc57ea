"""`redismem import`: copy the conversations that frameworks have stored elsewhere."""
